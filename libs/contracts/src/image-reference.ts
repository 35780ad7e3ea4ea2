/** A name's components in OCI's distribution specification. */
const COMPONENT = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
/** A registry: its name or address, and its port. */
const LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
const HOST = `(?:${LABEL}(?:\\.${LABEL})*|\\[[a-fA-F0-9:]+\\])(?::[0-9]{1,5})?`;
const NAME = `(?:${HOST}/)?${COMPONENT}(?:/${COMPONENT})*`;
const TAG = "[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}";
const ALGORITHM = "[a-z0-9]+(?:[.+_-][a-z0-9]+)*";
const REFERENCE = new RegExp(`^(${NAME})(?::${TAG})?(?:@(${ALGORITHM}):([a-zA-Z0-9=_-]+))?$`);
const MAX_NAME_CHARACTERS = 255;
/** Lengths in hexadecimal of the digests registered in OCI's image specification. */
const DIGEST_CHARACTERS: ReadonlyMap<string, number> = new Map([
  ["sha256", 64],
  ["sha512", 128],
]);

/**
 * Whether the text is an image reference in the grammar of OCI's distribution specification:
 * `[host[:port]/]name[:tag][@digest]`.
 */
export function isImageReference(given: string): boolean {
  const [, name = "", algorithm, encoded = ""] = REFERENCE.exec(given) ?? [];
  if (name === "" || name.length > MAX_NAME_CHARACTERS) return false;
  if (algorithm === undefined) return true;
  const characters = DIGEST_CHARACTERS.get(algorithm);
  if (characters === undefined) return encoded.length >= 32;
  return encoded.length === characters && /^[a-f0-9]+$/.test(encoded);
}
