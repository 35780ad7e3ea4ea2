/** `skipped`: it could not be checked here, for the reason that `what` gives. */
export type FindingStatus = "ok" | "warning" | "error" | "skipped";

/** The result of one check at one place. */
export interface Finding {
  /** The check's name, as `disk`. */
  readonly check: string;
  readonly status: FindingStatus;
  /** The machine, file, port, master or node. */
  readonly where: string;
  readonly what: string;
  /** How to repair it; null where nothing is to be done. */
  readonly fix: string | null;
}

/** The findings of one check at one place. */
export class Reporter {
  readonly #check: string;
  readonly #where: string;

  constructor(check: string, where: string) {
    this.#check = check;
    this.#where = where;
  }

  ok(what: string): Finding {
    return this.#finding("ok", what, null);
  }

  skipped(what: string): Finding {
    return this.#finding("skipped", what, null);
  }

  warning(what: string, fix: string): Finding {
    return this.#finding("warning", what, fix);
  }

  error(what: string, fix: string): Finding {
    return this.#finding("error", what, fix);
  }

  #finding(status: FindingStatus, what: string, fix: string | null): Finding {
    return { check: this.#check, status, where: this.#where, what, fix };
  }
}
