"""The scripts that the store runs: each is one atomic step for all machines.

All keys have the same hash tag, so a cluster keeps them on one server. Numbers travel as msgpack.
A member is one worker of one machine; `members` has the instant at which each was last heard.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "{lightgate}:"
MEMBERS: Final = PREFIX + "members"
EPOCH: Final = PREFIX + "epoch"
KEY: Final = PREFIX + "key:"  # a hash for each virtual key with limits
LIVE: Final = PREFIX + "live:"  # in-flight counts and breakers of a member
FORM: Final = PREFIX + "form:"
FORMS: Final = PREFIX + "forms"  # members by the time at which they last told their form
ANSWER: Final = PREFIX + "answer:"
ANSWERS: Final = PREFIX + "answers"  # cache keys by their end
ANSWER_SIZES: Final = PREFIX + "answer-sizes"
PROBE: Final = PREFIX + "probe:"  # keys of a try, of a member each; they are gone at its end

# What every script begins with: the server's time, who is here, and since when the data is there.
_HEAD: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function alive(members, lease)
  return redis.call('ZCOUNT', members, now - lease, '+inf')
end
"""

# KEYS: members, epoch, then the hash of each item. ARGV: a batch as msgpack.
#
# A member says for each key what it holds reserved, what its machine has spent in this period, and
# how many requests and tokens it has counted since its life began: absolute numbers, so that a
# batch that is lost or comes twice does no harm. Then each need is granted or refused.
#
# Fields of a hash: `m:` member = {life, seq, period, held, requests, tokens, held tokens, the share
# of what is left that the member was told (money, requests, tokens), and the advance, a small part
# of that}; `n:` machine = {period, spent, and both of the period before: the clock of one machine
# may be ahead of others}; `ledger` = {period, spent} of all machines, where they have one ledger;
# `ring` = {second, sum of requests, sum of tokens, 61 counts of each}.
#
# A member that cannot ask takes its advance, and its share once it has been silent for a while.
# What others may take in this way is kept back: the advance of those that speak, and the share of
# those that are silent. A member says what it may still take, in case that it has missed an answer.
SPEND: Final = (
    _HEAD
    + """
local batch = cmsgpack.unpack(ARGV[1])
local member, machine, life, seq = batch[1], batch[2], batch[3], batch[4]
local lease, silence, settle = batch[5], batch[6], batch[7]
redis.call('ZADD', KEYS[1], now, member)
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
local settling = now - tonumber(redis.call('GET', KEYS[2])) < settle
local count = alive(KEYS[1], lease)
local silent, gone = {}, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now - lease, now - silence)) do
  silent[name] = true
end
local function dead(name)
  if gone[name] == nil then
    local at = redis.call('ZSCORE', KEYS[1], name)
    gone[name] = not at or now - tonumber(at) > lease
  end
  return gone[name]
end
local second = math.floor(now / 1000)

local function turned(packed)
  local ring = packed and cmsgpack.unpack(packed) or {second, 0, 0, {}, {}}
  if second > ring[1] then
    for passed = math.max(ring[1] + 1, second - 60), second do
      local at = passed % 61 + 1
      ring[2] = ring[2] - (ring[4][at] or 0)
      ring[3] = ring[3] - (ring[5][at] or 0)
      ring[4][at], ring[5][at] = 0, 0
    end
    ring[1] = second
  end
  for at = 1, 61 do
    ring[4][at], ring[5][at] = ring[4][at] or 0, ring[5][at] or 0
  end
  return ring
end

-- Seconds until so much has left the last minute.
local function wait(ring, counts, over)
  for passed = ring[1] - 60, ring[1] do
    over = over - counts[passed % 61 + 1]
    if over <= 0 then return passed + 61 - now / 1000 end
  end
  return 60
end

local function count_more(ring, requests, tokens)
  local at = ring[1] % 61 + 1
  requests, tokens = math.max(requests, -ring[4][at]), math.max(tokens, -ring[5][at])
  ring[4][at], ring[2] = ring[4][at] + requests, ring[2] + requests
  ring[5][at], ring[3] = ring[5][at] + tokens, ring[3] + tokens
end

local function item_of(hash, item)
  local period, budget, rpm, tpm = item[1], item[2], item[3], item[4]
  local spent, ledger, held = item[5], item[6], item[7]
  local requests, tokens, held_tokens = item[8], item[9], item[10]
  local recent_requests, recent_tokens, needs = item[11], item[12], item[13]
  local may, keeps = item[14], item[15]
  local flat, rows = redis.call('HGETALL', hash), {}
  for at = 1, #flat, 2 do rows[flat[at]] = flat[at + 1] end
  local ring = turned(rows['ring'])
  local own = rows['m:' .. member] and cmsgpack.unpack(rows['m:' .. member])
  if own and own[1] == life and own[2] >= seq then return {} end
  if own and own[1] == life then
    count_more(ring, requests - own[5], tokens - own[6])
  else
    count_more(ring, recent_requests, recent_tokens)
  end
  local total, all_held, all_tokens = 0, held, held_tokens
  local kept_nano, kept_requests, kept_tokens = 0, 0, 0
  local other, other_spent
  for name, packed in pairs(rows) do
    local kind, whose = string.sub(name, 1, 2), string.sub(name, 3)
    if kind == 'm:' and whose ~= member then
      local row = cmsgpack.unpack(packed)
      all_held = all_held + row[4]
      if not dead(whose) then
        local from = silent[whose] and 8 or 11
        all_tokens = all_tokens + row[7]
        if row[3] == period then kept_nano = kept_nano + row[from] end
        kept_requests, kept_tokens = kept_requests + row[from + 1], kept_tokens + row[from + 2]
      end
    elseif kind == 'n:' then
      local row = cmsgpack.unpack(packed)
      local at = row[1] == period and 1 or row[3] == period and 3
      if whose ~= machine then
        if at then total = total + row[at + 1] end
      else
        if at then spent = math.max(spent, row[at + 1]) end
        if at == 1 then other, other_spent = row[3], row[4]
        else other, other_spent = row[1], row[2] end
      end
    end
  end
  total = total + spent
  local known = rows['ledger'] and cmsgpack.unpack(rows['ledger'])
  if known and known[1] == period then ledger = math.max(ledger, known[2]) end
  total = math.max(total, ledger)
  local codes, waits = {}, {}
  for at, need in ipairs(needs) do
    local code, pause = 0, 0
    local over = ring[2] + kept_requests + 1 - rpm
    local over_tokens = ring[3] + all_tokens + kept_tokens + need[2] - tpm
    if settling then code = 9
    elseif rpm >= 0 and over > 0 then code, pause = 1, wait(ring, ring[4], over)
    elseif tpm >= 0 and over_tokens > 0 then code, pause = 2, wait(ring, ring[5], over_tokens)
    elseif budget >= 0 and total + all_held + kept_nano + need[1] > budget then code = 3
    else
      held, all_held = held + need[1], all_held + need[1]
      held_tokens, all_tokens = held_tokens + need[2], all_tokens + need[2]
      requests = requests + 1
      count_more(ring, 1, 0)
    end
    codes[at], waits[at] = code, math.ceil(pause * 1000)
  end
  local left = {budget - total - all_held - kept_nano, rpm - ring[2] - kept_requests,
                tpm - ring[3] - all_tokens - kept_tokens}
  local share, advance = {}, {}
  for at = 1, 3 do
    share[at] = keeps and not settling and math.max(0, math.floor(left[at] / count)) or 0
    advance[at] = math.floor(share[at] / batch[9])
  end
  local row = {life, seq, period, held, requests, tokens, held_tokens, share[1], share[2], share[3],
               math.max(may[1], advance[1]), math.max(may[2], advance[2]),
               math.max(may[3], advance[3])}
  redis.call('HSET', hash, 'm:' .. member, cmsgpack.pack(row),
             'n:' .. machine, cmsgpack.pack({period, spent, other, other_spent}),
             'ring', cmsgpack.pack(ring))
  if ledger > 0 then redis.call('HSET', hash, 'ledger', cmsgpack.pack({period, ledger})) end
  redis.call('PEXPIRE', hash, 34560000000)
  return {codes, waits, left, share, advance, {total, all_held, ring[2], ring[3], all_tokens}}
end

local replies = {}
for at, item in ipairs(batch[8]) do replies[at] = item_of(KEYS[at + 2], item) end
return cmsgpack.pack({settling, count, replies})
"""
)

# KEYS: members, epoch, forms. ARGV: member, machine, live state, form or '', the time of the last
# call, milliseconds for which a member counts, live state holds, and form holds; the most members
# whose live state is read; prefixes of live state and form; the time up to which form was heard,
# and the most forms. Returns the time, the members that count, what others have said since (member,
# age, live state, age, form; form only of other machines), since when the store has its data, and
# the time up to which form is heard now: those that do not fit come in the next call, oldest first.
BEAT: Final = (
    _HEAD
    + """
local member, machine = ARGV[1], ARGV[2]
local since, lease, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[9])
redis.call('ZADD', KEYS[1], now, member)
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 86400000)
local stamp = string.format('%.0f', now) .. ':'
redis.call('SET', ARGV[10] .. member, stamp .. ARGV[3], 'PX', ARGV[7])
if ARGV[4] ~= '' then
  redis.call('SET', ARGV[11] .. member, stamp .. ARGV[4], 'PX', ARGV[8])
  redis.call('ZADD', KEYS[3], now, member)
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(ARGV[8]))
local function told(name, since)
  local found = redis.call('GET', name)
  if not found then return '', 0 end
  local at = string.find(found, ':', 1, true)
  local when = tonumber(string.sub(found, 1, at - 1))
  if when <= since then return '', 0 end
  return string.sub(found, at + 1), now - when
end
local names = redis.call('ZRANGEBYSCORE', KEYS[1], now - lease, '+inf')
local first = #names > most and now % #names or 0
local rows = {}
for step = 1, math.min(#names, most) do
  local name = names[(first + step - 1) % #names + 1]
  if name ~= member then
    local live, live_age = told(ARGV[10] .. name, since)
    if live ~= '' then rows[#rows + 1] = {name, tostring(live_age), live, '0', ''} end
  end
end
local from, some, upto = '(' .. ARGV[12], tonumber(ARGV[13]), string.format('%.0f', now - 1)
local fresh = redis.call('ZRANGEBYSCORE', KEYS[3], from, '+inf', 'LIMIT', 0, some)
if #fresh == some then  -- all of the last instant, which may be more than fit
  upto = redis.call('ZSCORE', KEYS[3], fresh[#fresh])
  fresh = redis.call('ZRANGEBYSCORE', KEYS[3], from, upto)
end
for _, name in ipairs(fresh) do
  if string.sub(name, 1, #machine + 1) ~= machine .. ':' then
    local form, form_age = told(ARGV[11] .. name, 0)
    if form ~= '' then rows[#rows + 1] = {name, '0', '', tostring(form_age), form} end
  end
end
return {string.format('%.0f', now), #names, rows, redis.call('GET', KEYS[2]), upto}
"""
)

# KEYS: members, forms. ARGV: member, prefixes of live state and form. A member that ends in good
# order.
LEAVE: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', ARGV[2] .. ARGV[1], ARGV[3] .. ARGV[1])
return 1
"""

# KEYS: the answers by their end, their sizes, the answer. ARGV: the answer, its time to live in
# milliseconds, the most bytes of all answers. What ends first goes first.
PUT_ANSWER: Final = (
    _HEAD
    + """
local function drop(name)
  redis.call('ZREM', KEYS[1], name)
  local size = tonumber(redis.call('HGET', KEYS[2], name) or 0)
  redis.call('HDEL', KEYS[2], name)
  if size > 0 then redis.call('HINCRBY', KEYS[2], 'all', -size) end
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do
  drop(name)
end
drop(KEYS[3])
local size, most = #ARGV[1] + #KEYS[3] + 200, tonumber(ARGV[3])
if size > most then return 0 end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), KEYS[3])
redis.call('HSET', KEYS[2], KEYS[3], size)
local all = redis.call('HINCRBY', KEYS[2], 'all', size)
while all > most do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then break end
  redis.call('DEL', oldest)
  drop(oldest)
  all = tonumber(redis.call('HGET', KEYS[2], 'all'))
end
return 1
"""
)

# KEYS: the answers by their end, then answers. Returns each with the milliseconds that it has left
# by the server's clock, or nil.
GET_ANSWERS: Final = (
    _HEAD
    + """
local rows = {}
for at = 2, #KEYS do
  local found, ends = redis.call('GET', KEYS[at]), redis.call('ZSCORE', KEYS[1], KEYS[at])
  rows[at - 1] = found and ends and {found, tonumber(ends) - now} or false
end
return rows
"""
)

# KEYS: two of a member's own; members, epoch, forms, answers, their sizes. Tries every command of
# the scripts above, so that a server that takes no writes, does not let this user do something, or
# has data of another kind under these names, says so before a request asks it.
TRY: Final = (
    _HEAD
    + """
redis.call('SET', KEYS[1], now, 'PX', 1000)  -- first: a full server lets a script go on to write
redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'a', 1)
redis.call('HINCRBY', KEYS[1], 'a', 1)
redis.call('HGET', KEYS[1], 'a')
redis.call('HGETALL', KEYS[1])
redis.call('HDEL', KEYS[1], 'b')
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('ZADD', KEYS[2], now, 'a')
alive(KEYS[2], 1)
redis.call('ZSCORE', KEYS[2], 'a')
redis.call('ZRANGE', KEYS[2], 0, 0)
redis.call('ZRANGEBYSCORE', KEYS[2], 0, 0)
redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, 0)
redis.call('ZREM', KEYS[2], 'a')
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('GET', KEYS[4])
redis.call('HGET', KEYS[7], 'all')
for _, name in ipairs({KEYS[3], KEYS[5], KEYS[6]}) do alive(name, 1) end
return 1
"""
)
