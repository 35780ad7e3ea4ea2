import { AppError } from "@heddle/base/errors";
import { readBoundedText } from "@heddle/base/flag-file";
import { isLoopback } from "@heddle/base/network/network-address";
import { addBindingRequest, setPolicyRequest } from "@heddle/contracts/api/access/bindings";
import { setRoleRequest } from "@heddle/contracts/api/access/roles";
import { serviceName, setServiceRequest } from "@heddle/contracts/api/access/service-accounts";
import { ROLE_NAME, SHIPPED_ROLES } from "@heddle/contracts/roles";
import { z } from "zod";

/** Signatures by a private key; with a shared secret every verifier could sign. */
const ALGORITHMS = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
] as const;

const claim = z.string().min(1).max(200);

/** The identity provider, as the file names it. */
export const oauth2Settings = z.strictObject({
  issuer: z
    .string()
    .max(500)
    .refine(isSecureUrl, "expected https://..., or http:// on loopback")
    .describe("The provider's address, whose metadata are read."),
  audience: z
    .union([z.string().min(1), z.array(z.string().min(1)).min(1).max(16)])
    .describe("The API's own: another than the `client_id`."),
  client_id: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .describe("With it people sign in from the command line."),
  scopes: z
    .array(z.string().min(1).max(200))
    .max(32)
    .default(["openid", "offline_access"])
    .describe("What a sign-in asks for."),
  jwks_uri: z
    .string()
    .max(500)
    .refine(isSecureUrl, "expected https://...")
    .optional()
    .describe("The keys' address, where the metadata do not name it."),
  algorithms: z
    .array(z.enum(ALGORITHMS))
    .min(1)
    .default(["RS256", "PS256", "ES256", "EdDSA"])
    .describe("Accepted signatures; never with a shared secret."),
  token_types: z
    .array(z.string().min(1).max(50))
    .min(1)
    .max(8)
    .default(["at+jwt", "JWT"])
    .transform((types) => types.map((type) => type.toLowerCase()))
    .describe(
      "Accepted types; `none` for a provider that writes none, with an audience of its own.",
    ),
  clock_skew_seconds: z
    .int()
    .min(0)
    .max(300)
    .default(30)
    .describe("Tolerance of the times in a token."),
  claims: z
    .strictObject({
      user: claim
        .default("sub")
        .describe(
          "The claim to which roles of a `user` are bound; `email` only where it is verified.",
        ),
      groups: claim.optional().describe("The claim with the names of groups."),
      roles: claim
        .optional()
        .describe("The claim with roles for the whole cluster: only values with `roles_prefix`."),
    })
    .prefault({}),
  introspection: z
    .strictObject({
      endpoint: z
        .string()
        .max(500)
        .refine(isSecureUrl, "expected https://...")
        .describe("Says whether a token was revoked."),
      client_id: z.string().min(1).max(200).describe("Who asks there."),
      client_secret_file: z.string().min(1).max(4_096).describe("The file with its secret."),
    })
    .optional(),
  console: z
    .strictObject({
      public_url: z
        .string()
        .max(500)
        .refine(isSecureUrl, "expected https://..., or http:// on loopback")
        .describe("Where browsers find the console."),
      client_id: z.string().min(1).max(200).optional().describe("Absent: the one above."),
      client_secret_file: z
        .string()
        .min(1)
        .max(4_096)
        .optional()
        .describe("The file with its secret; absent for a public client."),
      scopes: z
        .array(z.string().min(1).max(200))
        .min(1)
        .max(32)
        .default(["openid"])
        .describe("What the sign-in asks for."),
      session_minutes: z
        .int()
        .min(5)
        .max(1_440)
        .default(480)
        .describe("The longest session; it ends with its access token."),
    })
    .optional(),
  parameters: z
    .record(z.string().max(100), z.string().max(500))
    .default({})
    .describe("Further members of the commands' requests to the provider, such as `resource`."),
  roles_prefix: z
    .string()
    .max(100)
    .default("heddle:")
    .describe("What marks roles of this cluster in `claims.roles`."),
});

const rbac = z.strictObject({
  ...setPolicyRequest.partial().shape,
  roles: z.record(z.string().regex(ROLE_NAME), setRoleRequest).default({}),
  service_accounts: z.record(serviceName, setServiceRequest).default({}),
  bindings: z.array(addBindingRequest).max(10_000).default([]),
});

const authFile = z
  .strictObject({
    method: z.enum(["api_keys", "oauth2"]).default("api_keys"),
    oauth2: oauth2Settings.optional(),
    rbac: rbac.optional(),
  })
  .refine(({ method, oauth2 }) => (method === "oauth2") === (oauth2 !== undefined), {
    path: ["oauth2"],
    message: "it is given with the method oauth2, and only then",
  })
  .refine(({ rbac }) => Object.keys(rbac?.roles ?? {}).every((name) => !isShipped(name)), {
    path: ["rbac", "roles"],
    message: `${Object.keys(SHIPPED_ROLES).join(", ")} are every cluster's: choose other names`,
  });

/** How callers prove who they are, and the roles that a start sets. */
export type AuthSettings = z.output<typeof authFile>;

/** Reads the file. Throws one `invalid_value` with all its faults. */
export function readAuthFile(path: string): AuthSettings {
  const { success, data, error } = authFile.safeParse(parsed(path));
  if (success) return data;
  const faults = error.issues.map(({ path: at, message }) => {
    return `${at.length === 0 ? "the file" : at.map(String).join(".")}: ${message}`;
  });
  throw new AppError("invalid_value", `--auth-file ${path}: ${faults.join("; ")}.`);
}

function parsed(path: string): unknown {
  try {
    return JSON.parse(readBoundedText(path));
  } catch (error) {
    const message = `--auth-file ${path} cannot be read as JSON: ${(error as Error).message}.`;
    throw new AppError("invalid_value", message);
  }
}

function isSecureUrl(text: string): boolean {
  const url = URL.parse(text);
  if (!url || url.username || url.password || url.search || url.hash) return false;
  if (url.protocol === "https:") return true;
  return url.protocol === "http:" && isLoopback(url.hostname);
}

function isShipped(name: string): boolean {
  return Object.hasOwn(SHIPPED_ROLES, name);
}
