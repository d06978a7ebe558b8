-- What every process that shares its limits asks of the engine: one run of this script is one atomic step on the engine's clock.
--
-- KEYS[1] is a hash: `epoch` (which run of the engine this data belongs to), `since` (when it began), `last` (when it was last
-- asked), and for each process `p:NAME` = `generation expires`. A process is alive until its lease expires; each connection
-- that it makes is a new generation.
-- PREFIX..'s:'..CALLER is a hash: how many slots of the caller each process holds, by `NAME.generation`. A count of a process
-- or generation that is not alive counts for nothing. PREFIX..'r:'..CALLER is when the caller's bucket is full again.
-- Times are microseconds. Answers: {known, processes, wait in ms, then for each caller: in time, held, has room, wait in ms}.

local STATE, PREFIX = KEYS[1], ARGV[1]
local act, name, generation = ARGV[2], ARGV[3], tonumber(ARGV[4])
local lease, per_caller, interval = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local FIRST = 8
local BURST = 60000000 -- a minute
local DAY_MS = 86400000
local KNOWN, UNKNOWN = 1, 0

if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7 a script that reads the clock must say so
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local found, state, processes = redis.call('HGETALL', STATE), {}, {}
for i = 1, #found, 2 do
  if string.sub(found[i], 1, 2) == 'p:' then
    local its, expires = string.match(found[i + 1], '^(%d+) (%d+)$')
    processes[string.sub(found[i], 3)] = {generation = tonumber(its), expires = tonumber(expires)}
  else
    state[found[i]] = found[i + 1]
  end
end

local function remember(who, process)
  redis.call('HSET', STATE, 'p:' .. who, string.format('%d %.0f', process.generation, process.expires))
end

-- An engine that stood still, or whose clock was set, has let nobody in meanwhile: who was alive before is alive now.
local last = tonumber(state.last or now)
local jumped = now < last or now - last > lease / 2
local alive, count = {}, 0
for who, process in pairs(processes) do
  if jumped and process.expires > last then
    process.expires = now + lease
    remember(who, process)
  end
  if process.expires > now then
    alive[who .. '.' .. process.generation] = true
    count = count + 1
  else
    redis.call('HDEL', STATE, 'p:' .. who)
    processes[who] = nil
  end
end

-- Data that is not there was lost, or never was; what an engine that was started again has kept may be old. Calls may be
-- running that it does not know of: a new epoch begins, and nobody is let in for one lease, in which each process says what
-- it runs. Who comes first after a start joins, so only joining has to look.
local since, epoch = math.min(tonumber(state.since or now), now), state.epoch
if act == 'join' then epoch = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') end
if epoch ~= state.epoch then since = now end
if epoch then
  redis.call('HSET', STATE, 'epoch', epoch, 'since', string.format('%.0f', since), 'last', string.format('%.0f', now))
  redis.call('PEXPIRE', STATE, DAY_MS)
end
local wait = math.max(0, since + lease - now)

local me, known = name .. '.' .. generation, processes[name]

local function state_slots(caller, held)
  local key = PREFIX .. 's:' .. caller
  if held > 0 then
    redis.call('HSET', key, me, held)
    redis.call('PEXPIRE', key, math.ceil(3 * lease / 1000))
  else
    redis.call('HDEL', key, me)
  end
end

if act == 'join' then
  if known and known.generation > generation then return {UNKNOWN, count, 0} end -- a connection that was given up long ago
  if not known then count = count + 1 end
  -- Who was away for longer than its lease may find others in its place: what it runs is known from now on, and it waits.
  if ARGV[FIRST] == 'again' and not known and wait == 0 then wait = lease end
  remember(name, {generation = generation, expires = now + lease})
  for i = FIRST + 1, #ARGV, 2 do state_slots(ARGV[i], tonumber(ARGV[i + 1])) end
  return {KNOWN, count, math.ceil(wait / 1000)}
end

if not alive[me] then return {UNKNOWN, count, 0} end
if act == 'leave' then
  redis.call('HDEL', STATE, 'p:' .. name)
  return {KNOWN, count - 1, 0}
end
remember(name, {generation = generation, expires = now + lease})

local function held_elsewhere(caller)
  local key, sum = PREFIX .. 's:' .. caller, 0
  local held = redis.call('HGETALL', key)
  for i = 1, #held, 2 do
    if held[i] ~= me then
      if alive[held[i]] then
        sum = sum + tonumber(held[i + 1])
      else
        redis.call('HDEL', key, held[i])
      end
    end
  end
  return sum
end

-- How many of `wanted` calls come no faster than they may (GCRA), and how long the next one has to wait.
local function in_time(caller, wanted, interval)
  if interval == 0 then return wanted, 0 end
  local key = PREFIX .. 'r:' .. caller
  local due = math.min(math.max(tonumber(redis.call('GET', key) or now), now), now + BURST)
  local may = math.min(wanted, math.floor((now + BURST - due) / interval + 0.000001))
  if may > 0 then
    due = due + may * interval
    redis.call('SET', key, string.format('%.3f', due), 'PX', math.ceil((due - now) / 1000))
  end
  return may, math.ceil((due + interval - now - BURST) / 1000)
end

local answer = {KNOWN, count, math.ceil(wait / 1000)}
for i = FIRST, #ARGV, 6 do
  local caller, held = ARGV[i], tonumber(ARGV[i + 1])
  local to_hold, to_pass = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local most, pace = tonumber(ARGV[i + 4]) or per_caller, tonumber(ARGV[i + 5]) or interval -- its own, where it has some
  local may, pause, taken, room = 0, 0, 0, 0
  if wait == 0 and to_hold + to_pass > 0 then
    may, pause = in_time(caller, to_hold + to_pass, pace)
    local free = most - held - held_elsewhere(caller)
    taken = math.max(0, math.min(to_hold, may, free))
    if free > taken then room = 1 end
  end
  state_slots(caller, held + taken)
  answer[#answer + 1] = may
  answer[#answer + 1] = taken
  answer[#answer + 1] = room
  answer[#answer + 1] = pause
end
return answer
