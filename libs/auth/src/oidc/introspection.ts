import { AppError } from "@heddle/base/errors";
import { fetchJson } from "./fetch-json.ts";

export interface IntrospectionOptions {
  readonly endpoint: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Called when the provider gave no usable answer. */
  readonly onFailure?: ((error: Error) => void) | undefined;
}

/**
 * Asks the identity provider whether it has revoked a token (RFC 7662).
 * Resolves with false for one that it has; throws `unavailable` where it gives no answer.
 */
export async function isActiveToken(
  token: string,
  options: IntrospectionOptions,
): Promise<boolean> {
  const { endpoint, clientId, clientSecret, onFailure } = options;
  const body = new URLSearchParams({ token, token_type_hint: "access_token" });
  try {
    const authorization = basic(clientId, clientSecret);
    const answer = await fetchJson(new URL(endpoint), { body, authorization });
    const { active } = answer as { readonly active?: unknown };
    if (typeof active === "boolean") return active;
    throw new Error(`${endpoint} answered without \`active\``);
  } catch (error) {
    onFailure?.(error as Error);
    const message =
      "The identity provider does not say now whether the access token was revoked. Try again, or use an API key.";
    throw new AppError("unavailable", message, { retryAfterMs: 5_000, cause: error });
  }
}

/** RFC 6749 encodes both as forms do before they are joined. */
function basic(id: string, secret: string): string {
  const encoded = (text: string) => new URLSearchParams({ "": text }).toString().slice(1);
  return `Basic ${Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString("base64")}`;
}
