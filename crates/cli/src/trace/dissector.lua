local fanin = Proto("fanin", "Fanin in-network aggregation")
local registered = {}

-- One filter field for each name of a format: fields of several lengths and places share it.
local function register(layout, field)
  local abbreviation = "fanin." .. layout .. "." .. field.name
  if not registered[abbreviation] then
    local base = field.show == "hex" and base.HEX or base.DEC
    if field.bytes > 4 then
      registered[abbreviation] = ProtoField.uint64(abbreviation, field.name, base)
    elseif field.show == "signed" then
      registered[abbreviation] = ProtoField.int32(abbreviation, field.name)
    else
      registered[abbreviation] = ProtoField.uint32(abbreviation, field.name, base, field.values)
    end
  end
  field.proto = registered[abbreviation]
end

local function register_layout(layout, fields)
  for _, field in ipairs(fields) do register(layout.name, field) end
  layout.kind_field = registered["fanin." .. layout.name .. ".kind"]
  if not layout.kind_field then
    local names = {}
    for number, kind in pairs(layout.kinds) do names[number] = kind[1] end
    layout.kind_field = ProtoField.uint32("fanin." .. layout.name .. ".kind", "kind", base.DEC, names)
    registered["fanin." .. layout.name .. ".kind"] = layout.kind_field
  end
end

register_layout(HOP, HOP.fields)
register_layout(HOP, WAY)
-- Systems that share a format share its fields.
for _, layout in pairs(SYSTEMS) do register_layout(layout, layout.fields) end
local system_field = ProtoField.uint32("fanin.system", "system", base.DEC, NAMES)
local payload_field = ProtoField.bytes("fanin.payload", "payload")
local all = { system_field, payload_field }
for _, field in pairs(registered) do all[#all + 1] = field end
fanin.fields = all

-- The value of a field of up to four bytes.
local function value_of(layout, field, range)
  local whole = layout.big and range:uint() or range:le_uint()
  local value = math.floor(whole / 2 ^ field.shift) % 2 ^ field.width
  if field.show == "signed" and value >= 2 ^ (field.width - 1) then value = value - 2 ^ field.width end
  return value
end

local function add(tree, layout, field, tvb, offset)
  local range = tvb(offset + field.at, field.bytes)
  if field.bytes > 4 then
    local value = layout.big and range:uint64() or range:le_uint64()
    tree:add(field.proto, range, value)
    return tostring(value)
  end
  local value = value_of(layout, field, range)
  tree:add(field.proto, range, value)
  return string.format("%d", value)
end

-- Adds a header; gives its length and what it says in a line, or nothing where it is not whole.
local function header(tree, layout, tvb, offset)
  if tvb:len() <= offset + layout.kind_at then return nil end
  local number = tvb(offset + layout.kind_at, 1):uint()
  number = math.floor(number / 2 ^ layout.kind_shift) % 2 ^ layout.kind_width
  local kind = layout.kinds[number]
  if not kind or tvb:len() < offset + kind[2] then return nil end
  local subtree = tree:add(fanin, tvb(offset, kind[2]), layout.title .. ", " .. kind[1])
  subtree:add(layout.kind_field, tvb(offset + layout.kind_at, 1), number)
  local words = { layout.title .. " " .. kind[1] }
  for _, field in ipairs(layout.fields) do
    if not field.kinds or field.kinds[number] then
      local value = add(subtree, layout, field, tvb, offset)
      if SHOWN[field.name] then words[#words + 1] = field.name .. "=" .. value end
    end
  end
  return kind[2], table.concat(words, " ")
end

local HOP_BYTES = HOP.kinds[15][2]
local WAY_BYTES = 12

-- Whether these bytes begin with a hop header of this version.
local function is_hop(tvb, offset)
  if tvb:len() < offset + HOP_BYTES then return false end
  local roles = tvb(offset + 3, 1):uint()
  return tvb(offset, 1):uint() == 240 + VERSION and tvb(offset + 2, 1):uint() < 16 and roles % 16 <= 4 and math.floor(roles / 16) <= 4
    and SYSTEMS[tvb(offset + 1, 1):uint()] ~= nil
end

-- One packet; gives where the next one may begin, and what it says in a line.
local function packet(tvb, offset, tree)
  local flags = tvb(offset + 2, 1):uint()
  local is_neighbour = math.floor(flags / 4) % 2 == 1
  local hop_bytes = HOP_BYTES + (is_neighbour and 0 or WAY_BYTES)
  if tvb:len() < offset + hop_bytes then return nil end
  local system, payload = tvb(offset + 1, 1):uint(), tvb(offset + 6, 2):le_uint()
  local subtree = tree:add(fanin, tvb(offset, hop_bytes), "Hop, job " .. tvb(offset + 4, 2):le_uint() .. ", " .. (NAMES[system] or "?"))
  subtree:add(system_field, tvb(offset + 1, 1), system)
  for _, field in ipairs(HOP.fields) do add(subtree, HOP, field, tvb, offset) end
  if not is_neighbour then
    for _, field in ipairs(WAY) do add(subtree, HOP, field, tvb, offset) end
  end
  -- One byte says once more which system's header follows; the link's own messages have none.
  local from = offset + hop_bytes + (system == LINK and 0 or 1)
  if system ~= LINK and (tvb:len() < from or tvb(from - 1, 1):uint() ~= system) then return nil end
  local length, line = header(tree, SYSTEMS[system], tvb, from)
  if not length then return nil end
  local at = from + length
  if payload > 0 and tvb:len() >= at + payload then tree:add(payload_field, tvb(at, payload)) end
  return at + payload, line
end

function fanin.dissector(tvb, pinfo, root)
  if not is_hop(tvb, 0) then return 0 end
  pinfo.cols.protocol = "Fanin"
  local tree = root:add(fanin, tvb(), "Fanin")
  local at, lines = 0, {}
  -- Captured before they are cut up, datagrams hold several packets.
  while at and is_hop(tvb, at) do
    local line
    at, line = packet(tvb, at, tree)
    lines[#lines + 1] = line
  end
  if #lines > 0 then pinfo.cols.info = table.concat(lines, "; ") end
  return tvb:len()
end

fanin:register_heuristic("udp", function(tvb, pinfo, root)
  if not is_hop(tvb, 0) then return false end
  fanin.dissector(tvb, pinfo, root)
  return true
end)
