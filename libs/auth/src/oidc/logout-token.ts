import { type JWTVerifyGetKey, jwtVerify } from "jose";

/** The sessions that a provider has ended, and when: one session, or all of a subject. */
export interface EndedSessions {
  readonly sid: string | undefined;
  readonly subject: string | undefined;
  readonly atMs: number;
}

interface LogoutRules {
  readonly issuer: string;
  readonly clientId: string;
  readonly algorithms: readonly string[];
  readonly clockSkewS: number;
}

const EVENT = "http://schemas.openid.net/event/backchannel-logout";
const MAX_CHARS = 8_192;
/** A logout token is used at once: an older one may be sent again by a thief. */
const MAX_AGE_S = 300;
const MAX_NAME_CHARS = 256;

/** Reads a logout token of OpenID Connect Back-Channel Logout 1.0; undefined if it is not valid. */
export async function readLogoutToken(
  text: string,
  findKey: JWTVerifyGetKey,
  { issuer, clientId, algorithms, clockSkewS }: LogoutRules,
): Promise<EndedSessions | undefined> {
  if (text.length > MAX_CHARS) return undefined;
  try {
    const { payload, protectedHeader } = await jwtVerify(text, findKey, {
      issuer,
      audience: clientId,
      algorithms: [...algorithms],
      clockTolerance: clockSkewS,
      maxTokenAge: MAX_AGE_S,
      requiredClaims: ["iss", "aud", "iat", "jti"],
    });
    const type = protectedHeader.typ?.toLowerCase().replace(/^application\//, "") ?? "logout+jwt";
    const { events, nonce, sub, sid, iat = 0 } = payload;
    const isLogout = Object.hasOwn(Object(events), EVENT);
    if (!["logout+jwt", "jwt"].includes(type) || !isLogout || nonce !== undefined) return undefined;
    const [subject, session] = [nameOf(sub), nameOf(sid)];
    if (subject === undefined && session === undefined) return undefined;
    return { sid: session, subject, atMs: iat * 1_000 };
  } catch {
    return undefined;
  }
}

function nameOf(claim: unknown): string | undefined {
  const isName = typeof claim === "string" && claim !== "" && claim.length <= MAX_NAME_CHARS;
  return isName ? claim : undefined;
}
