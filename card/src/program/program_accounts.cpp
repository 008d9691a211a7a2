// The accounts of a program: what the ops it stands for cost. Nothing of it runs.
#include <string>

#include "nests/step_payload.h"
#include "program/program.h"
#include "spyre/program.h"

namespace spyre::card {
namespace {

std::string read_text(PayloadReader& reader, const char* field) {
  const std::int64_t bytes = reader.within(field, 0, kMaxAccountName);
  const auto words = reader.words(field, (bytes + 7) / 8);
  return {reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(bytes)};
}

}  // namespace

std::vector<Account> decode_accounts(std::size_t index, std::span<const std::byte> payload) {
  PayloadReader reader(index, "accounts", payload);
  std::vector<Account> accounts;
  const std::int64_t count = reader.count("account count");
  for (std::int64_t i = 0; i < count; ++i) {
    reader.in_loop(i, "account");
    Account& account = accounts.emplace_back();
    OpCost& cost = account.cost;
    account.name = read_text(reader, "name");
    account.count = reader.within("count", 0, kMaxElements);
    cost.unit = reader.within("unit", 0, 1) == 0 ? Unit::sfp : Unit::pt;
    cost.passes = reader.real("passes");
    if (!(cost.passes >= 0 && cost.passes <= 1e6)) reader.refuse("passes", "not in 0..1e6");
    cost.element_bytes = reader.within("element bytes", 1, 8);
    cost.cores = reader.within("cores", 1, kCores);
    for (const AccountField& field : kAccountFields)
      cost.*field.member = reader.within(field.name, 0, kMaxAccountNumber);
  }
  reader.in_loop(-1);
  reader.finish();
  return accounts;
}

}  // namespace spyre::card
