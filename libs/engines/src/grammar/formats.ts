const DAY = "(?:0[1-9]|1\\d|2[0-8])";
const LEAP_YEAR = "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const DATE =
  `(?:\\d{4}-(?:(?:0[1-9]|1[0-2])-${DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)` +
  `|${LEAP_YEAR}-02-29)`;
const TIME =
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[-+](?:[01]\\d|2[0-3]):[0-5]\\d)";
const LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?";
const HOST = `${LABEL}(?:\\.${LABEL}){0,6}`;
const BYTE = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const GROUP = "[0-9a-fA-F]{1,4}";
const HEX = "[0-9a-fA-F]";
const PERIOD = "(?:\\d{1,9}D|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?)";
const CLOCK = "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)";
const ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{}|~-]{1,32}";
const URI_CHAR = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";

/** Each supported format, the texts as a regular expression; some are a part of what RFCs allow. */
export const FORMATS: ReadonlyMap<string, string> = new Map([
  ["date", DATE],
  ["time", TIME],
  ["date-time", `${DATE}T${TIME}`],
  ["duration", `P(?:${PERIOD}(?:${CLOCK})?|${CLOCK}|\\d{1,9}W)`],
  ["email", `${ATOM}(?:\\.${ATOM}){0,3}@${LABEL}(?:\\.${LABEL}){1,5}`],
  ["hostname", HOST],
  ["ipv4", `${BYTE}(?:\\.${BYTE}){3}`],
  ["ipv6", `(?:${GROUP}:){7}${GROUP}|(?:${GROUP}:){1,6}:${GROUP}|::(?:${GROUP}:){0,5}${GROUP}|::`],
  ["uuid", `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}`],
  ["uri", `https?://${HOST}(?::\\d{1,4})?(?:/${URI_CHAR}*)*(?:\\?${URI_CHAR}*)?(?:#${URI_CHAR}*)?`],
]);

/** The least and the greatest of OpenAPI's formats of integers; of 64 bits, as doubles hold them. */
export const INTEGER_FORMATS = new Map<unknown, readonly [least: number, most: number]>(
  [8, 16, 32, 64].flatMap(
    (bits) =>
      [
        [`int${bits}`, [-(2 ** (bits - 1)), greatest(bits - 1)]],
        [`uint${bits}`, [0, greatest(bits)]],
      ] as const,
  ),
);

/** The greatest double of this many bits. */
function greatest(bits: number): number {
  return 2 ** bits - 2 ** Math.max(0, bits - 53);
}

/** Formats that say how a value is meant or stored and forbid nothing here. */
export const ANNOTATING_FORMATS: ReadonlySet<string> = new Set([
  "float",
  "double",
  "decimal",
  "password",
  "byte",
  "binary",
  "textarea",
  "markdown",
  "html",
  "color",
]);
