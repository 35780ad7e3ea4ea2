import { afterAll, afterEach } from "vitest";
import { checkedFetch } from "./checked-fetch.ts";
import type { ReplyCheck } from "./reply-check.ts";

/** In every test: a master's reply that differs from the OpenAPI document fails the test. */
const DOCUMENT = new URL("../../libs/contracts/openapi.json", import.meta.url);

/** Faults that one test reports; further ones are dropped. */
const MAX_FAULTS = 20;

/** Shared by the files that run together in one process, as `fetch` is. */
interface Checked {
  readonly faults: Set<string>;
  check?: Promise<ReplyCheck>;
}

const CHECKED = Symbol.for("heddle.reply-check");
const shared = globalThis as typeof globalThis & { [CHECKED]?: Checked };

function installed(): Checked {
  const checked: Checked = { faults: new Set() };
  const load = () => {
    checked.check ??= import("./reply-check.ts").then(({ ReplyCheck }) => new ReplyCheck(DOCUMENT));
    return checked.check;
  };
  globalThis.fetch = checkedFetch(globalThis.fetch, load, (fault) => {
    if (checked.faults.size < MAX_FAULTS) checked.faults.add(fault);
  });
  shared[CHECKED] = checked;
  return checked;
}

const { faults } = shared[CHECKED] ?? installed();

function reportFaults(): void {
  const found = [...faults];
  faults.clear();
  if (found.length > 0) {
    throw new Error(`replies differ from libs/contracts/openapi.json:\n${found.join("\n")}`);
  }
}

afterEach(reportFaults);
afterAll(reportFaults);
