#include <gtest/gtest.h>

#include <limits>

#include "reprise/io.h"
#include "support/input_error.h"

namespace reprise {
namespace {

std::string error(const char* text) {
  return input_error([&] { static_cast<void>(parse_bytes(text)); });
}

TEST(ByteSizeTest, ParsesBytesAndUnits) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("12B"), 12);
  EXPECT_EQ(parse_bytes("500MB"), 500'000'000);
  EXPECT_EQ(parse_bytes("6GiB"), std::int64_t{6} << 30);
  EXPECT_EQ(parse_bytes("6gib"), std::int64_t{6} << 30);
  EXPECT_EQ(parse_bytes("3 TiB"), std::int64_t{3} << 40);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("7 kB"), 7'000);
}

TEST(ByteSizeTest, FractionsAreExactAndRoundedDown) {
  EXPECT_EQ(parse_bytes("0.1GiB"), 107'374'182);
  EXPECT_EQ(parse_bytes("0.3GB"), 300'000'000);
  EXPECT_EQ(parse_bytes("1.0009765625MiB"), (1 << 20) + 1024);
  EXPECT_EQ(parse_bytes("0.99999999999999999999999999999999999999 KB"), 999);
  EXPECT_EQ(parse_bytes("0.00000000000000000000000000000000000001 TiB"), 0);
}

TEST(ByteSizeTest, RefusesEverythingElse) {
  EXPECT_EQ(error(""), "'' is not a size: it must begin with a digit, as in 6GiB");
  EXPECT_EQ(error("-5MB"), "'-5MB' is not a size: it must begin with a digit, as in 6GiB");
  EXPECT_EQ(error(".5GB"), "'.5GB' is not a size: it must begin with a digit, as in 6GiB");
  EXPECT_EQ(error("5.GB"), "'5.GB' is not a size: a digit must follow the point");
  EXPECT_EQ(error("1.5"), "'1.5' is not a size: bytes have no fraction");
  const std::string units =
      " is not a size: the unit must be B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)";
  EXPECT_EQ(error("6G"), "'6G'" + units);
  EXPECT_EQ(error("6  GB"), "'6  GB'" + units);
  EXPECT_EQ(error("6GBs"), "'6GBs'" + units);
  EXPECT_EQ(error("1e9"), "'1e9'" + units);
  EXPECT_EQ(error("0x10"), "'0x10'" + units);
}

TEST(ByteSizeTest, RefusesWhatDoesNotFit64Bits) {
  EXPECT_EQ(parse_bytes("8388606TiB"), std::int64_t{8388606} << 40);
  EXPECT_EQ(error("8388608TiB"), "'8388608TiB' is not a size: too large");
  EXPECT_EQ(error("9223372036854775808"), "'9223372036854775808' is not a size: too large");
  EXPECT_EQ(error("99999999999999999999999999"), "'99999999999999999999999999' is not a size: too large");
}

TEST(ByteSizeTest, FormatsWithTwoDecimals) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1'500'000), "1.43 MiB");
  EXPECT_EQ(format_bytes(6'292'000'000), "5.86 GiB");
  EXPECT_EQ(format_bytes((1 << 20) + 62'915), "1.06 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::max()), "8192.00 PiB");
}

TEST(ByteSizeTest, RoundingUpMovesToTheNextUnit) {
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes((std::int64_t{1} << 30) - 1), "1.00 GiB");
}

}  // namespace
}  // namespace reprise
