// holds: events-shredded

import { randomBytes } from "node:crypto";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import { MAX_ENTRY_BYTES } from "@heddle/event-store/log/segment";
import fc from "fast-check";
import { expect, test } from "vitest";
import { openedEvent, sealerOf } from "./sealed-members.ts";

const KEY = randomBytes(32).toString("base64");
const PLACE = { sequence: 7, origin: "heddle/events/c1" };
const seal = sealerOf(PLACE.origin)(PLACE.sequence);

/** Opens the members as those of an actor. */
function opened(actordata: string, place = PLACE, key = KEY) {
  const stored = { data: {}, actorkey: "k1", actordata } as unknown as LogEvent;
  return openedEvent(stored, place, () => key) as unknown as Record<string, unknown>;
}

test("personal members: what is sealed opens at its place, under its key", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.string({ unit: "binary" })), (data) => {
      const sealed = seal({ data }, "actor", KEY);
      expect(opened(sealed)).toEqual({ data });
      expect(seal({ data }, "actor", KEY)).toBe(sealed);
    }),
  );
});

test("personal members: the bytes are those of every version and master", () => {
  const key = Buffer.alloc(32, 7).toString("base64");
  const of = sealerOf(PLACE.origin);
  const late = of(2 ** 32 + 5)({ userid: "key:a" }, "actor", key);
  expect(late).toBe("SnXGema2LO2vUoJz25kWPTAAGHZI7yvzHzVKAih3MfdKuRQ=");
  const wide = of(7)({ data: { text: "\u6f22\u5b57" } }, "actor", key);
  expect(wide).toBe("izt4wjEs5I9y0V7D6x5hTwNFeMsjjosbBCavyTAypAwIoeOKnr361BOIQg==");
});

test("personal members: another key, place, role, log or byte opens nothing", () => {
  const sealed = seal({ data: { name: "alice" } }, "actor", KEY);
  const gone = { data: {}, shredded: "actor" };
  expect(opened(sealed, PLACE, randomBytes(32).toString("base64"))).toEqual(gone);
  expect(opened(sealed, PLACE, "")).toEqual(gone);
  expect(opened(sealed, { ...PLACE, sequence: 8 })).toEqual(gone);
  expect(opened(sealed, { ...PLACE, origin: "heddle/events/c2" })).toEqual(gone);
  expect(opened(seal({ data: {} }, "caller", KEY))).toEqual(gone);
  const bytes = Buffer.from(sealed, "base64");
  for (let at = 0; at < bytes.length; at++) {
    bytes[at]! ^= 1;
    expect(opened(bytes.toString("base64")), `byte ${at}`).toEqual(gone);
    bytes[at]! ^= 1;
  }
  for (const short of ["", "AAAA"]) expect(opened(short)).toEqual(gone);
});

test("personal members: the largest data fit into an entry, in any script", () => {
  for (const unit of ["a", "\u00e9", "\u6f22", "\u{1f9f5}"]) {
    const data = { text: unit.repeat(Math.floor(16_000 / unit.length)) };
    const sealed = seal({ data }, "actor", KEY);
    expect(sealed.length).toBeLessThan(MAX_ENTRY_BYTES - 8_192);
    expect(opened(sealed)).toEqual({ data });
  }
});
