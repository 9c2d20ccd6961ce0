-- What Argo CD shows for a Memcached, a GenericDaemon or an App: what kstatus says of it, and
-- Suspended while it is paused. Copied for each kind by hack/update-codegen.sh.
local health = { status = "Progressing", message = "No controller has seen this generation yet" }
local status = obj.status
if status == nil or status.conditions == nil
    or status.observedGeneration ~= obj.metadata.generation then
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local function is(condition)
  return conditions[condition] ~= nil and conditions[condition].status == "True"
end

local ready = conditions.Ready
if ready == nil then
  return health
end
health.message = ready.message
if is("Stalled") then
  -- Only a person can help.
  health.status = "Degraded"
  health.message = conditions.Stalled.message
elseif ready.status == "True" then
  health.status = "Healthy"
elseif ready.reason == "Paused" then
  health.status = "Suspended"
elseif is("Degraded") and not is("Reconciling") then
  -- Its rollout has completed, and now its pods do not serve.
  health.status = "Degraded"
end
return health
