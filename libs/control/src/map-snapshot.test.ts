// holds: state-snapshot-turns

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { HashedMap } from "./hashed-map.ts";

/** Changes a map at random, at existing and at new keys. */
function change(map: HashedMap<number>, random: () => number): void {
  const key = `k${Math.floor(random() * 60)}`;
  const roll = random();
  if (roll < 0.01) map.clear();
  else if (roll < 0.4) map.delete(key);
  else map.set(key, random());
}

test("snapshot: has its moment's entries in order, whatever changes: 500 seeds", () => {
  let changed = 0;
  for (let seed = 1; seed <= 500; seed++) {
    const random = seededRandom(seed);
    const map = new HashedMap<number>();
    for (let i = 0; i < 100; i++) change(map, random);
    const open = Array.from({ length: 2 }, () => {
      const expected = [...map];
      const snapshot = map.freeze();
      for (let i = random() * 5; i > 1; i--) change(map, random);
      return { expected, snapshot, reader: snapshot.entries(), found: [] as unknown[] };
    });
    for (let reading = open.length; reading > 0; ) {
      for (let i = random() * 4; i > 1; i--) change(map, random);
      reading = 0;
      for (const { reader, found } of open) {
        const next = random() < 0.5 ? reader.next() : undefined;
        if (next?.done) continue;
        reading++;
        if (next) found.push(next.value);
      }
    }
    for (const { snapshot, expected, found } of open) {
      expect(found, `seed ${seed}`).toEqual(expected);
      map.end(snapshot);
      if (JSON.stringify([...map]) !== JSON.stringify(expected)) changed++;
    }
    expect(map.frozen).toBe(0);
  }
  expect(changed).toBeGreaterThan(900);
});
