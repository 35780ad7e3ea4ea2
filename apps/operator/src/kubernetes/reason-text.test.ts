import { expect, it } from "vitest";
import { reasonText } from "./reason-text.ts";

it("events: say why, and a reason that begins the message only once", () => {
  const of = (reason: string | null, message: string | null) =>
    reasonText({ phase: "Pending", reason, message });
  expect(of(null, null)).toBe("it is Pending");
  expect(of("ImagePull", "no such image")).toBe("ImagePull: no such image");
  expect(of("NoNodes", "NoNodes: none is ready")).toBe("NoNodes: none is ready");
});
