import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { ROLE_NAME, SUBJECT_NAME } from "@heddle/contracts/roles";
import type { TokenUser } from "../identity/identity-adapter.ts";

/** Which claims name the user, its groups and its roles; a dot leads into an object. */
export interface ClaimNames {
  readonly user: string;
  readonly groups: string | undefined;
  readonly roles: string | undefined;
  /** Only values with it are roles; it is removed. */
  readonly rolesPrefix: string;
}

type Claims = Readonly<Record<string, unknown>>;

const MAX_GROUPS = 500;
const MAX_ROLES = 64;
/** The length of the ID's hash in characters: 132 bits. */
const ID_CHARS = 22;

/** The user of verified claims. Throws `invalid_api_key` if they name none. */
export function userOfClaims(claims: Claims, names: ClaimNames): TokenUser {
  const subject = claimAt(claims, names.user);
  if (typeof subject !== "string" || !SUBJECT_NAME.test(subject)) {
    throw refusedToken(`its claim \`${names.user}\` names no user`);
  }
  if (names.user === "email" && claims["email_verified"] !== true) {
    throw refusedToken("its identity provider has not verified the e-mail address");
  }
  const groups = textsAt(claims, names.groups).filter((each) => SUBJECT_NAME.test(each));
  if (groups.length > MAX_GROUPS) {
    throw refusedToken(`it has ${groups.length} groups, and at most ${MAX_GROUPS} are read`);
  }
  const roles = textsAt(claims, names.roles)
    .filter((each) => each.startsWith(names.rolesPrefix))
    .map((each) => each.slice(names.rolesPrefix.length))
    .filter((each) => ROLE_NAME.test(each));
  const id = idOf(String(claims["iss"]), String(claims["sub"]));
  return { id, subject, groups, roles: roles.slice(0, MAX_ROLES) };
}

/** The refusal of a token; the reason completes a sentence. */
export function refusedToken(reason: string): AppError {
  return new AppError("invalid_api_key", `The access token is refused: ${reason}.`);
}

/** The ID differs by issuer and by subject. */
function idOf(issuer: string, subject: string): string {
  const hash = createHash("sha256").update(JSON.stringify([issuer, subject]));
  return `usr_${hash.digest("base64url").slice(0, ID_CHARS)}`;
}

/** A claim by its own name, such as `https://a/groups`, or by a path such as `realm.roles`. */
function claimAt(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  let value: unknown = claims;
  for (const part of name.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part))
      return undefined;
    value = (value as Claims)[part];
  }
  return value;
}

/** A list of texts, or a text of words. */
function textsAt(claims: Claims, name: string | undefined): string[] {
  const value = name === undefined ? undefined : claimAt(claims, name);
  if (typeof value === "string") return value.split(" ").filter(Boolean);
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}
