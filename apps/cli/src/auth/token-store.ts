import { join } from "node:path";
import { readUserFile, writeUserFile } from "./user-file.ts";

/** What a sign-in leaves for a cluster. */
export interface StoredLogin {
  readonly issuer: string;
  readonly clientId: string;
  /** Further members of each request to the identity provider, such as `resource`. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly accessToken: string;
  readonly refreshToken?: string | undefined;
  /** Milliseconds since the epoch; absent if the provider does not say. */
  readonly expiresAtMs?: number | undefined;
}

const MAX_LOGINS = 100;

/** The sign-ins of this user by the cluster's address, in a file that only the user reads. */
export class TokenStore {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  get file(): string {
    return join(this.#directory, "tokens.json");
  }

  get(endpoint: string): StoredLogin | undefined {
    return this.#read().find(([known]) => known === endpoint)?.[1];
  }

  /** Stores a sign-in, or removes it; the oldest makes room. */
  set(endpoint: string, login: StoredLogin | undefined): void {
    const others = this.#read().filter(([known]) => known !== endpoint);
    const logins = login ? [...others, [endpoint, login] as const] : others;
    writeUserFile(this.file, { version: 1, logins: logins.slice(-MAX_LOGINS) });
  }

  #read(): readonly LoginEntry[] {
    return readUserFile<readonly LoginEntry[]>({
      file: this.file,
      empty: [],
      read: (json) => {
        const { logins } = json as { logins?: unknown };
        if (!Array.isArray(logins) || !logins.every(isEntry)) throw new Error("it has no logins");
        return logins;
      },
      remedy: "Delete it, and sign in again with `heddle auth login`.",
    });
  }
}

type LoginEntry = readonly [endpoint: string, login: StoredLogin];

function isEntry(given: unknown): given is LoginEntry {
  const [endpoint, login] = (Array.isArray(given) ? given : []) as [unknown, unknown];
  if (typeof endpoint !== "string" || typeof login !== "object" || !login) return false;
  const { issuer, clientId, accessToken } = login as Partial<StoredLogin>;
  return [issuer, clientId, accessToken].every((each) => typeof each === "string");
}
