// holds: access-identity-port

import {
  type IssuedClaims,
  identityConformance,
} from "../identity/testing/identity-conformance.ts";
import { IssuerKeys } from "./issuer-keys.ts";
import { KeyServer, signedToken, signingKey } from "./testing/key-server.ts";
import { TokenVerifier } from "./token-verifier.ts";

const AUDIENCE = "heddle";
const ROLES_PREFIX = "heddle:";

identityConformance("OpenID Connect", async () => {
  const server = new KeyServer();
  await server.start();
  const key = await server.addKey("k1");
  const foreignKey = await signingKey("k1");
  const adapterOf = (jwksUri?: string) =>
    new TokenVerifier(
      {
        issuer: server.issuer,
        audience: [AUDIENCE],
        algorithms: ["RS256"],
        tokenTypes: ["at+jwt"],
        clockSkewS: 0,
        claims: { user: "sub", groups: "groups", roles: "roles", rolesPrefix: ROLES_PREFIX },
      },
      new IssuerKeys({ issuer: server.issuer, jwksUri, now: () => performance.now() }).find,
      Date.now,
    );
  const claimsOf = ({ subject, groups, roles }: IssuedClaims, more = {}) => {
    const nowS = Math.floor(Date.now() / 1_000);
    const own = { groups, roles: roles?.map((role) => `${ROLES_PREFIX}${role}`) };
    const claims = { iss: server.issuer, aud: AUDIENCE, sub: subject, iat: nowS, exp: nowS + 300 };
    return JSON.parse(JSON.stringify({ ...claims, ...own, ...more }));
  };
  return {
    adapter: adapterOf(),
    issue: (claims) => signedToken(key, claimsOf(claims)),
    issueExpired: (claims) => signedToken(key, claimsOf(claims, { iat: 1, exp: 2 })),
    issueForAnother: (claims) => signedToken(key, claimsOf(claims, { aud: "other" })),
    forge: (claims) => signedToken(foreignKey, claimsOf(claims)),
    unreachable: () => adapterOf("http://127.0.0.1:9/keys"),
    close: () => server.close(),
  };
});
