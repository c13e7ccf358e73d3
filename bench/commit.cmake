# Writes TO, a header with the commit of the tree at FROM. It runs in every build, because a commit
# or an edit is no change of a source that a rule could name; an unchanged header is left alone. The
# tree's own repository is asked, not one that it was unpacked into.
cmake_path(GET FROM PARENT_PATH above)
set(ENV{GIT_CEILING_DIRECTORIES} "${above}")
execute_process(
  COMMAND git -C "${FROM}" describe --always --abbrev=12 --exclude=* --dirty=+
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${TO}" CONTENT "inline constexpr char kCommit[] = \"${commit}\";\n")
