/** A node's role determines what it may call. */
export type NodeRole = "master" | "worker" | "parameter-server";

/** The valid names of nodes. */
export const NODE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

export const NODE_ROLES: readonly NodeRole[] = ["master", "worker", "parameter-server"];

/** A node's identity within its cluster. */
export interface NodeClaim {
  readonly role: NodeRole;
  readonly name: string;
}

/** The identity in a certificate. */
export interface NodeName extends NodeClaim {
  /** The first 32 hexadecimal digits of the SHA-256 of the authority's certificate. */
  readonly domain: string;
}

const CLAIM = /^(master|worker|parameter-server)\/([A-Za-z0-9][A-Za-z0-9._-]{0,62})$/;

/** `role/name`. */
export function writeClaim({ role, name }: NodeClaim): string {
  return `${role}/${name}`;
}

/** Undefined for an invalid claim. */
export function readClaim(text: string): NodeClaim | undefined {
  const [, role, name] = CLAIM.exec(text) ?? [];
  if (role === undefined || name === undefined) return undefined;
  return { role: role as NodeRole, name };
}

const FORM =
  /^URI:spiffe:\/\/([0-9a-f]{32})\/(master|worker|parameter-server)\/([A-Za-z0-9][A-Za-z0-9._-]{0,62})$/;

/** The name as the certificate's only SPIFFE URI (https://spiffe.io, SPIFFE-ID). */
export function spiffeUri({ domain, role, name }: NodeName): string {
  return `spiffe://${domain}/${role}/${name}`;
}

/** The node in a certificate's alternative names; undefined unless they are exactly one URI. */
export function nodeNameOf(subjectAltName: string | undefined): NodeName | undefined {
  const [, domain, role, name] = FORM.exec(subjectAltName ?? "") ?? [];
  if (domain === undefined || role === undefined || name === undefined) return undefined;
  return { domain, role: role as NodeRole, name };
}
