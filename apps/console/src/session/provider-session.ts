import { Heddle } from "@heddle/client/heddle";

/** What this master says of sign-ins with an identity provider. */
export interface ProviderSession {
  /** Whether browsers can sign in so. */
  readonly sign_in: boolean;
  readonly issuer?: string;
  /** Whether this one has. */
  readonly signed_in: boolean;
  readonly csrf?: string;
}

const PATH = "/console/session";
/** Proves that a page of the console sends a call. */
export const SESSION_PROOF = "x-heddle-csrf";

/** Asks whether this browser has signed in. The session's cookie is hidden from scripts. */
export async function readProviderSession(): Promise<ProviderSession> {
  const reply = await fetch(PATH, { credentials: "same-origin" });
  if (!reply.ok) return { sign_in: false, signed_in: false };
  return (await reply.json()) as ProviderSession;
}

/** A client whose calls the cookie names, with the proof that this page sends them. */
export function openSessionClient(csrf: string, project?: string): Heddle {
  const send: typeof fetch = (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set(SESSION_PROOF, csrf);
    return fetch(input, { ...init, headers, credentials: "same-origin" });
  };
  return new Heddle({ endpoint: location.origin, fetch: send, project });
}

/** Leaves for the identity provider, which leads back to this page. */
export function goToProvider(): void {
  location.assign(`${PATH}/login?to=${encodeURIComponent(location.pathname + location.search)}`);
}

/** Ends the session here, and leads to the provider to end it there. Fails where it continues. */
export async function leaveProvider(csrf: string): Promise<void> {
  const headers = { [SESSION_PROOF]: csrf };
  const reply = await fetch(`${PATH}/logout`, {
    method: "POST",
    headers,
    credentials: "same-origin",
  });
  const hasEndedBefore = reply.status === 401;
  if (hasEndedBefore) return;
  if (!reply.ok) throw new Error(`the sign-out was answered with ${reply.status}`);
  const { logout_url: url } = (await reply.json()) as { readonly logout_url: string | null };
  if (url) location.assign(url);
}
