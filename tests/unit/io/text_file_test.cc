#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "reprise/io.h"
#include "support/input_error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

class TextFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "reprise_text_file_test";
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(TextFileTest, ReadsBackWhatWasWritten) {
  std::string text(1'000'000, 'x');
  text += std::string("\0\r\n\xFF", 4);
  write_text(folder_ / "a", "old");
  write_text(folder_ / "a", text);
  EXPECT_EQ(read_text(folder_ / "a"), text);
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(TextFileTest, ErrorsNameTheFileAndTheReason) {
  const std::string missing = (folder_ / "none" / "a").string();
  EXPECT_EQ(input_error([&] { static_cast<void>(read_text(missing)); }),
            "cannot read '" + missing + "': No such file or directory");
  EXPECT_EQ(input_error([&] { write_text(missing, ""); }), "cannot write '" + missing + "': No such file or directory");
  EXPECT_EQ(input_error([&] { static_cast<void>(read_text(folder_)); }),
            "cannot read '" + folder_.string() + "': Is a directory");
  EXPECT_EQ(input_error([&] { write_text(folder_, ""); }), "cannot write '" + folder_.string() + "': Is a directory");
}

TEST_F(TextFileTest, LeavesTheTemporaryFilesOfOthersAlone) {
  write_text(folder_ / "a.tmp0", "not ours");
  write_text(folder_ / "a", "new");
  EXPECT_EQ(read_text(folder_ / "a"), "new");
  EXPECT_EQ(read_text(folder_ / "a.tmp0"), "not ours");
  EXPECT_EQ(num_files(), 2U);
}

TEST_F(TextFileTest, WritesThroughALink) {
  write_text(folder_ / "a", "old");
  fs::create_symlink("a", folder_ / "link");
  write_text(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_text(folder_ / "a"), "new");
}

TEST_F(TextFileTest, WritesIntoADeviceInsteadOfReplacingIt) {
  write_text("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  if (fs::exists("/dev/full")) {
    EXPECT_EQ(input_error([] { write_text("/dev/full", "x"); }), "cannot write '/dev/full': No space left on device");
  }
}

}  // namespace
}  // namespace reprise
