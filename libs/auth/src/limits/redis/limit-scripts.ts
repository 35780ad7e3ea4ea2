/**
 * The scripts that Redis runs, each as one step. A subject is a hash:
 * - `r`, `t`: when its past requests and tokens are refilled, by Redis' clock in ms (GCRA).
 * - `c:MASTER`: its calls that run on a master.
 * - `s:PERIOD:MASTER`: what the master has spent of its budget, in nano-units.
 *
 * The group is a hash: the masters' sessions and when each expires, the time of its creation, and a
 * floor. No `r` or `t` is before the floor.
 *
 * A subject whose spend is gone was lost. The group is then deleted, and each master begins a new
 * session, which sends what it has spent.
 */

/** What every script begins with: an old session changes nothing. */
const HEAD = `
local group, me, session = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
if redis.call('HGET', group, 'session:' .. me) ~= session then return {'stale'} end
local function lost(key, period)
  if redis.call('HEXISTS', key, 's:' .. period .. ':' .. me) == 1 then return false end
  redis.call('DEL', group)
  return true
end
`;

/** ARGV: master, session, its lifetime in ms. Returns when the group was created and its age, in ms. */
export const BEGIN = `
local group, me = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
redis.call('HSETNX', group, 'created', string.format('%.0f', now))
redis.call('HSET', group, 'session:' .. me, ARGV[2], 'alive:' .. me, string.format('%.0f', now + ARGV[3]))
local created = redis.call('HGET', group, 'created')
return { created, string.format('%.0f', now - created) }
`;

/** ARGV: master, session, its lifetime in ms. */
export const RENEW = `${HEAD}
redis.call('HSET', group, 'alive:' .. me, string.format('%.0f', now + ARGV[3]))
return {'ok'}
`;

/** Empties all rate limits: what was admitted without Redis is unknown to it. */
export const EMPTY = `${HEAD}
redis.call('HSET', group, 'floor', string.format('%.0f', now + 60000))
return {'ok'}
`;

/** The arguments of each subject in TAKE. */
const TAKE_FIELDS = 11;

/**
 * Takes amounts of all subjects, or of none. ARGV, after master and session, for each subject:
 * - the limits of requests, tokens, calls and spend (-1 for none), and the period;
 * - the amounts of requests and calls (one number), of tokens and of spend;
 * - the own running calls and own spend to announce (-1 for none);
 * - the lifetime in ms.
 */
export const TAKE = `${HEAD}
local window, fields = 60000, ${TAKE_FIELDS}
local floor = tonumber(redis.call('HGET', group, 'floor') or '0')
local states, refused = {}, nil
for i = 2, #KEYS do
  local key, at = KEYS[i], 2 + (i - 2) * fields
  local function arg(n) return tonumber(ARGV[at + n]) end
  local period = ARGV[at + 5]
  if arg(9) >= 0 then redis.call('HSET', key, 'c:' .. me, ARGV[at + 9]) end
  if arg(10) >= 0 and arg(4) >= 0 then redis.call('HSET', key, 's:' .. period .. ':' .. me, ARGV[at + 10]) end
  if arg(4) >= 0 and lost(key, period) then return {'stale'} end
  local r, t, calls, spent, mine = now, now, 0, 0, 0
  local all = redis.call('HGETALL', key)
  for f = 1, #all, 2 do
    local name, value = all[f], all[f + 1]
    if name == 'r' then r = math.max(r, tonumber(value))
    elseif name == 't' then t = math.max(t, tonumber(value))
    elseif string.sub(name, 1, 2) == 'c:' then
      local alive = redis.call('HGET', group, 'alive:' .. string.sub(name, 3))
      if alive and tonumber(alive) > now then calls = calls + tonumber(value) end
    elseif string.sub(name, 1, 3 + #period) == 's:' .. period .. ':' then
      spent = spent + tonumber(value)
      if string.sub(name, 4 + #period) == me then mine = tonumber(value) end
    elseif arg(4) >= 0 then
      -- Only earlier periods of the same kind: a master's clock or limits may be behind.
      local other = string.match(name, '^s:([^:]*):')
      if other and #other == #period and other < period then redis.call('HDEL', key, name) end
    end
  end
  r, t = math.max(r, floor), math.max(t, floor)
  local state = { r = r, t = t, others = spent - mine }
  states[i] = state
  local function wait(until_, cost, limit)
    if limit < 0 or cost == 0 then return 0, until_ end
    if limit == 0 then return 1e15, until_ end
    local after = until_ + cost * window / limit
    return math.max(0, after - now - window - 0.01), after
  end
  local waitR, afterR = wait(r, arg(6), arg(1))
  local waitT, afterT = wait(t, arg(7), arg(2))
  local by = nil
  if arg(8) > 0 and arg(4) >= 0 and spent + arg(8) > arg(4) then by = 'spend'
  elseif arg(6) > 0 and arg(3) >= 0 and calls + 1 > arg(3) then by = 'concurrency'
  elseif waitR > 0 then by = 'requests'
  elseif waitT > 0 then by = 'tokens' end
  -- A budget that is spent is named before all else: to wait does not help.
  if by and (not refused or (by == 'spend' and refused[2] ~= 'spend')) then refused = { i - 2, by, by == 'tokens' and waitT or waitR } end
  state.afterR, state.afterT = afterR, afterT
end
local reply = { refused and 'no' or 'ok' }
if refused then
  reply[2], reply[3], reply[4] = refused[1], refused[2], string.format('%.3f', refused[3])
end
for i = 2, #KEYS do
  local key, at, state = KEYS[i], 2 + (i - 2) * fields, states[i]
  if not refused then
    local took, tokens, spend = ARGV[at + 6], tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
    state.r, state.t = state.afterR, state.afterT
    redis.call('HSET', key, 'r', string.format('%.3f', state.r), 't', string.format('%.3f', state.t))
    if tonumber(took) > 0 then redis.call('HINCRBY', key, 'c:' .. me, took) end
    if spend > 0 and tonumber(ARGV[at + 4]) >= 0 then
      redis.call('HINCRBY', key, 's:' .. ARGV[at + 5] .. ':' .. me, ARGV[at + 8])
    end
  end
  redis.call('PEXPIRE', key, ARGV[at + 11])
  reply[#reply + 1] = string.format('%.3f', math.max(0, state.r - now))
  reply[#reply + 1] = string.format('%.3f', math.max(0, state.t - now))
  reply[#reply + 1] = string.format('%.0f', state.others)
end
return reply
`;

/** Renews the lifetime of budgets. ARGV, after master and session, for each: period, lifetime in ms. */
export const KEEP = `${HEAD}
for i = 2, #KEYS do
  local at = 2 + (i - 2) * 2
  if lost(KEYS[i], ARGV[at + 1]) then return {'stale'} end
  redis.call('PEXPIRE', KEYS[i], ARGV[at + 2])
end
return {'ok'}
`;

/** The arguments of each subject in SETTLE. */
const SETTLE_FIELDS = 5;

/**
 * Adds signed amounts, whatever the limits. ARGV, after master and session, for each subject: ms of the
 * requests and of the tokens, running calls, the period ('' for no budget), spend.
 */
export const SETTLE = `${HEAD}
for i = 2, #KEYS do
  local key, at = KEYS[i], 2 + (i - 2) * ${SETTLE_FIELDS}
  if ARGV[at + 4] ~= '' and lost(key, ARGV[at + 4]) then return {'stale'} end
  -- A subject that has expired has nothing to settle.
  local exists = redis.call('EXISTS', key) == 1
  for n, name in ipairs({'r', 't'}) do
    local add = tonumber(ARGV[at + n])
    if exists and add ~= 0 then
      local value = tonumber(redis.call('HGET', key, name) or '0')
      redis.call('HSET', key, name, string.format('%.3f', math.max(0, value + add)))
    end
  end
  if exists and ARGV[at + 3] ~= '0' then redis.call('HINCRBY', key, 'c:' .. me, ARGV[at + 3]) end
  if ARGV[at + 4] ~= '' and ARGV[at + 5] ~= '0' then
    redis.call('HINCRBY', key, 's:' .. ARGV[at + 4] .. ':' .. me, ARGV[at + 5])
  end
end
return {'ok'}
`;
