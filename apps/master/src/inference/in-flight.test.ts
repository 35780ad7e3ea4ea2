import { expect, test } from "vitest";
import { InFlight } from "./in-flight.ts";

// holds: bound-calls
test("calls in flight: their requests are bounded in bytes, what they read included", () => {
  const inFlight = new InFlight({ maxCalls: 10, maxReadingBytes: 100 });
  // The largest request is served where no other one is.
  const large = inFlight.enter(150);
  inFlight.enter();
  expect(() => inFlight.enter(1)).toThrow(/serves calls with 150 bytes already/);
  inFlight.leave(large);
  inFlight.leave(large);
  const one = inFlight.enter(60);
  inFlight.hold(one, 100);
  inFlight.leave(one);
  const [two, three] = [inFlight.enter(60), inFlight.enter(30)];
  expect(() => inFlight.hold(two, 11)).toThrow(/serves calls with 90 bytes already/);
  inFlight.leave(two);
  inFlight.hold(three, 70);
  expect(inFlight.size).toBe(2);
});
