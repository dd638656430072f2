// Every test starts with an empty cache folder, so that it does not know what another one has measured or planned.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv and mkdtemp are POSIX

#include <filesystem>
#include <string>

namespace reprise::test {

class OwnCache : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& /*test*/) override {
    std::string pattern = (std::filesystem::temp_directory_path() / "reprise_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("REPRISE_CACHE_DIR", folder_.c_str(), 1);
  }
  void OnTestEnd(const testing::TestInfo& /*test*/) override { std::filesystem::remove_all(folder_); }

 private:
  std::filesystem::path folder_;
};

// Installs it once for each test binary.
inline const bool kOwnCache = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new OwnCache);
  return true;
}();

}  // namespace reprise::test
