import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readUserFile, writeUserFile } from "./user-file.ts";

/** A cluster, and how commands call it, under a name. */
export interface ClusterContext {
  readonly name: string;
  readonly endpoint: string;
  /** It is read at each command: the key itself is kept in its file alone. */
  readonly apiKeyFile?: string | undefined;
  readonly project?: string | undefined;
  /** A PEM file with the authority of the master's certificate. */
  readonly ca?: string | undefined;
}

/** The cluster of this machine, which is there without having been added. */
export const LOCAL = "local";

const MAX_CONTEXTS = 100;
const NAME = /^[A-Za-z0-9][\w.-]{0,62}$/;

interface Kept {
  readonly current: string;
  readonly contexts: readonly ClusterContext[];
}

/** The named clusters of this user, and the one that commands call. */
export class ContextStore {
  readonly #file: string;

  constructor(directory: string) {
    this.#file = join(directory, "contexts.json");
  }

  /** Undefined while commands call the cluster of this machine. */
  get current(): ClusterContext | undefined {
    const { current, contexts } = this.#read();
    return contexts.find(({ name }) => name === current);
  }

  list(): readonly ClusterContext[] {
    return this.#read().contexts;
  }

  get(name: string): ClusterContext | undefined {
    return this.list().find((each) => each.name === name);
  }

  /** Commands call this one from now on. */
  use(name: string): void {
    if (name !== LOCAL && !this.get(name)) throw this.#unknown(name);
    this.#write({ ...this.#read(), current: name });
  }

  /** Adds a context, or replaces that of its name. */
  set(context: ClusterContext): void {
    const { name } = context;
    if (name === LOCAL || !NAME.test(name)) {
      const message = `"${name}" cannot be the name of a context: give letters, digits, ".", "_" and "-", and not ${LOCAL}.`;
      throw new AppError("invalid_value", message);
    }
    const { current, contexts } = this.#read();
    const others = contexts.filter((each) => each.name !== name);
    if (others.length >= MAX_CONTEXTS) {
      const message = `There are ${MAX_CONTEXTS} contexts: remove one with \`heddle context remove\`.`;
      throw new AppError("invalid_value", message);
    }
    this.#write({ current, contexts: [...others, context] });
  }

  remove(name: string): void {
    if (!this.get(name)) throw this.#unknown(name);
    const { current, contexts } = this.#read();
    const others = contexts.filter((each) => each.name !== name);
    this.#write({ current: current === name ? LOCAL : current, contexts: others });
  }

  #unknown(name: string): AppError {
    const known = [LOCAL, ...this.list().map((each) => each.name)].join(", ");
    return new AppError("not_found", `There is no context ${name}; there are: ${known}.`);
  }

  #read(): Kept {
    return readUserFile<Kept>({
      file: this.#file,
      empty: { current: LOCAL, contexts: [] },
      read: keptOf,
      remedy: "Delete it, and add the contexts again with `heddle context set`.",
    });
  }

  #write(kept: Kept): void {
    writeUserFile(this.#file, { version: 1, ...kept });
  }
}

function keptOf(json: unknown): Kept {
  const { current, contexts } = json as Partial<Kept>;
  if (typeof current === "string" && Array.isArray(contexts) && contexts.every(isContext)) {
    return { current, contexts };
  }
  throw new Error("it has no contexts");
}

function isContext(given: unknown): given is ClusterContext {
  const {
    name,
    endpoint,
    apiKeyFile = "",
    project = "",
    ca = "",
  } = (given ?? {}) as ClusterContext;
  return [name, endpoint, apiKeyFile, project, ca].every((each) => typeof each === "string");
}
