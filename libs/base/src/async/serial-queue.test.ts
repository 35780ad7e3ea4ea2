import fc from "fast-check";
import { expect, test } from "vitest";
import { SerialQueue } from "./serial-queue.ts";

const piece = fc.record({ turns: fc.nat(4), fails: fc.boolean() });

test("SerialQueue: work runs alone and in order, and no error stops the next", async () => {
  const property = fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
    const queue = new SerialQueue();
    const log: string[] = [];
    const results = pieces.map(({ turns, fails }, at) =>
      queue.run(async () => {
        log.push(`begin ${at}`);
        for (let i = 0; i < turns; i++) await Promise.resolve();
        log.push(`end ${at}`);
        if (fails) throw new Error(`failed ${at}`);
        return at;
      }),
    );
    await queue.idle();
    expect(log).toEqual(pieces.flatMap((_piece, at) => [`begin ${at}`, `end ${at}`]));
    for (const [at, { fails }] of pieces.entries()) {
      if (fails) await expect(results[at]).rejects.toThrow(`failed ${at}`);
      else expect(await results[at]).toBe(at);
    }
  });
  await fc.assert(property);
});

test("SerialQueue: work that throws at once rejects, and the next runs", async () => {
  const queue = new SerialQueue();
  const thrown = queue.run(() => {
    throw new Error("at once");
  });
  const next = queue.run(() => "next");
  await expect(thrown).rejects.toThrow("at once");
  expect(await next).toBe("next");
});
