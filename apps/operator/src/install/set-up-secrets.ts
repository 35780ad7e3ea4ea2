import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { ENROLL_KEY, newEnrollKey, newSecrets, SECRET_NAMES, type Secrets } from "./new-secrets.ts";

/** Where the secrets of a cluster are kept, each as a text by its name. */
export interface SecretStore {
  /** For people, as "the Secret NAMESPACE/NAME". */
  readonly place: string;
  /** Keeps all secrets of a new cluster; false, with nothing changed, where there are some. */
  create(make: () => Promise<Secrets>): Promise<boolean>;
  read(): Promise<Partial<Secrets>>;
  add(name: keyof Secrets, text: string): Promise<void>;
}

/**
 * Makes a new cluster's certificate authority, first administrator's key and secrets key. Of those that
 * exist nothing is changed: without them the masters' state cannot be read. Only the key by which nodes
 * join is added where an earlier version has made the others without.
 */
export async function setUpSecrets(store: SecretStore, log: Log): Promise<void> {
  const { place } = store;
  if (await store.create(newSecrets)) return log.info({ place }, "the secrets were made");
  const present = await store.read();
  const missing = SECRET_NAMES.filter((name) => !present[name]);
  if (missing.length > 0) {
    const message = `${place} lacks ${missing.join(", ")}. Add them, or remove all of it for a new cluster.`;
    throw new AppError("conflict", message);
  }
  if (present[ENROLL_KEY]) return log.info({ place }, "the secrets exist and stay as they are");
  const text = newEnrollKey(present["ca.pem"] ?? "", `ca.pem of ${place}`);
  await store.add(ENROLL_KEY, text);
  log.info({ place }, "the enroll-key was added; the other secrets stay as they are");
}
