#include "crash/explore_files.h"

namespace TENUTO_NS::pm {

ExploreFiles::ExploreFiles(const std::string& source, const std::string& path, std::size_t files) {
  for (std::size_t f = 0; f < files; ++f) {
    images_.push_back(std::make_unique<ExploreImage>(crash_path(source, f), crash_path(path, f)));
  }
}

void ExploreFiles::set_lengths(const FileLengths& lengths) const {
  for (std::size_t f = 0; f < size(); ++f) images_[f]->set_length(lengths[f]);
}

void ExploreFiles::restore_lengths() const {
  for (const auto& image : images_) image->restore_length();
}

void ExploreFiles::restore_all() const {
  for (const auto& image : images_) image->restore_all();
}

std::optional<std::uint64_t> ExploreFiles::difference() const {
  for (std::size_t f = 0; f < size(); ++f) {
    if (const auto line = images_[f]->difference()) return first_line(f) + *line;
  }
  return std::nullopt;
}

bool ExploreFiles::save(const std::string& name,
                        const std::vector<std::pair<std::uint64_t, LineWords>>& lines) const {
  for (std::size_t f = 0; f < size(); ++f) {
    std::vector<std::pair<std::uint64_t, LineWords>> mine;
    for (const auto& [line, words] : lines) {
      if (file_of(line) == f) mine.emplace_back(line_in_file(line), words);
    }
    const std::string number = f == 0 ? "" : "." + std::to_string(f);
    if (!images_[f]->save(name + number + ".image", mine)) return false;
  }
  return true;
}

}  // namespace TENUTO_NS::pm
