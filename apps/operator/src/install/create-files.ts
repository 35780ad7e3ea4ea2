import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "@heddle/observability/logger";
import { commandFlags } from "./command-flags.ts";
import { ENROLL_KEY, SECRET_NAMES, type Secrets } from "./new-secrets.ts";
import { type SecretStore, setUpSecrets } from "./set-up-secrets.ts";

/** Writes a new cluster's secrets as files, readable by this user alone; files that exist stay. */
export async function createFiles(args: readonly string[], log: Log): Promise<void> {
  const { directory } = commandFlags(args, ["directory"]);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  await setUpSecrets(new SecretFiles(directory), log);
}

class SecretFiles implements SecretStore {
  readonly place: string;

  constructor(directory: string) {
    this.place = directory;
  }

  async create(make: () => Promise<Secrets>): Promise<boolean> {
    const present = readdirSync(this.place);
    if (SECRET_NAMES.some((name) => present.includes(name))) return false;
    for (const [name, text] of Object.entries(await make())) this.#write(name, text);
    return true;
  }

  async read(): Promise<Partial<Secrets>> {
    const present = readdirSync(this.place);
    const names = [...SECRET_NAMES, ENROLL_KEY].filter((name) => present.includes(name));
    return Object.fromEntries(
      names.map((name) => [name, readFileSync(join(this.place, name), "utf8")]),
    );
  }

  async add(name: keyof Secrets, text: string): Promise<void> {
    this.#write(name, text);
  }

  #write(name: string, text: string): void {
    writeFileSync(join(this.place, name), text, { mode: 0o600, flag: "wx" });
  }
}
