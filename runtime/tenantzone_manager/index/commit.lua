-- Makes one commit atomically: compares records with their values when they were read, charges accounts, updates ranks.
-- ARGV[1] is the prefix of all keys, ARGV[2] the commit in JSON. In the JSON, a number stands for each key and value: the
-- index of the argument with the key or value, or 0 for a missing value. Accounts follow the rules of core/quota.py.
local prefix = ARGV[1]
local commit = cjson.decode(ARGV[2])
local ACCOUNTS = prefix .. 'accounts'

local accounts, touched = {}, {}

local function account(name)
  local known = accounts[name]
  if not known then
    known = {used = 0, deleting = 0, committed = 0, reserved = 0, limit = -1}
    local text = redis.call('HGET', ACCOUNTS, name)
    if text then
      local used, deleting, committed, reserved, limit = string.match(text, '(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)')
      known = {used = tonumber(used), deleting = tonumber(deleting), committed = tonumber(committed),
        reserved = tonumber(reserved), limit = tonumber(limit)}
    end
    accounts[name] = known
  end
  touched[name] = known
  return known
end

for _, change in ipairs(commit.changes) do
  local before = change[3] > 0 and ARGV[change[3]]
  if redis.call('HGET', prefix .. change[1], ARGV[change[2]]) ~= before then return 'conflict' end
end

for _, terms in ipairs(commit.terms) do
  local chain = terms[1]
  local leaf = account(chain[1])
  leaf.reserved, leaf.limit = terms[2], terms[3]
  if #chain > 1 then
    local committed = math.max(leaf.used, leaf.reserved)
    for level = 2, #chain do
      local above = account(chain[level])
      above.committed = above.committed + committed - leaf.committed
    end
    leaf.committed = committed
  end
end

for _, charge in ipairs(commit.charges) do
  local chain, used, deleting, is_correction = charge[1], charge[2], charge[3], charge[4]
  local leaf = account(chain[1])
  local growth = math.max(leaf.used + used, leaf.reserved) - leaf.committed
  local is_limited = used > 0 and not is_correction
  if is_limited and leaf.limit ~= -1 and leaf.used + used > leaf.limit then return 'over ' .. chain[1] end
  for level = 1, #chain do
    local each = account(chain[level])
    if level > 1 and is_limited and each.limit ~= -1 and
        (each.used + used > each.limit or (growth > 0 and each.committed + growth > each.limit)) then
      return 'over ' .. chain[level]
    end
    each.used = each.used + used
    each.deleting = each.deleting + deleting
    each.committed = each.committed + growth
  end
end

-- Nothing has been written before this line, and nothing may be refused after it. A server without memory refuses the
-- first write of a script unless it is a deletion. So a commit that needs no room first deletes a key that can't exist.
if not commit.takes_room then redis.call('DEL', prefix .. 'nothing') end

for name, each in pairs(touched) do
  redis.call('HSET', ACCOUNTS, name, string.format('%.0f %.0f %.0f %.0f %.0f',
    each.used, each.deleting, each.committed, each.reserved, each.limit))
end

local changed = {}
for _, change in ipairs(commit.changes) do
  local space, key = change[1], ARGV[change[2]]
  if change[4] > 0 then
    redis.call('HSET', prefix .. space, key, ARGV[change[4]])
  else
    redis.call('HDEL', prefix .. space, key)
  end
  changed[#changed + 1] = struct.pack('>I4c0I4c0', #space, space, #key, key)
end

for _, rank in ipairs(commit.ranks) do
  if rank[3] ~= '' then
    redis.call('ZADD', prefix .. 'rank/' .. rank[1], rank[3], ARGV[rank[2]])
  else
    redis.call('ZREM', prefix .. 'rank/' .. rank[1], ARGV[rank[2]])
  end
end

if #changed > 0 then
  local sender = struct.pack('>I4c0', #commit.sender, commit.sender)
  redis.call('PUBLISH', prefix .. 'changed', sender .. table.concat(changed))
end
return 'made'
