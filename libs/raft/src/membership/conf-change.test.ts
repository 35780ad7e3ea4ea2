import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeConfChange, encodeConfChange, jointMode, leavesJoint } from "./conf-change.ts";

describe("the encoding of a conf change", () => {
  const types = fc.constantFrom("addNode", "removeNode", "updateNode", "addLearnerNode");
  const single = fc.record({ type: types, nodeId: fc.nat(2 ** 40) });
  const transition = fc.constantFrom("auto", "implicit", "explicit");

  it("round-trips", () => {
    const context = fc.uint8Array({ maxLength: 5 });
    fc.assert(
      fc.property(transition, fc.array(single), context, (how, changes, extra) => {
        const change = { transition: how, changes, context: extra };
        expect(decodeConfChange(encodeConfChange(change))).toEqual(change);
      }),
    );
  });

  it("of version 1 equals that of etcd", () => {
    const changes = [{ type: "addLearnerNode", nodeId: 300 } as const];
    const change = { transition: "auto", changes, context: new Uint8Array(0) } as const;
    const payload = encodeConfChange(change, 1);
    expect([...payload.data]).toEqual([0x10, 3, 0x18, 0xac, 0x02]);
    expect(decodeConfChange(payload)).toEqual(change);
  });

  it("that is truncated or of another type breaks an invariant", () => {
    const decode = (...data: number[]) =>
      decodeConfChange({ type: "EntryConfChangeV2", data: Uint8Array.from(data) });
    expect(() => decode(0x08)).toThrow("ends in the middle");
    expect(() => decode(0x12, 5, 1)).toThrow("ends in the middle");
    expect(() => decode(0x08, 7)).toThrow("unknown transition");
    expect(() => decode(0x0d, 1)).toThrow("unknown wire type");
    expect(() => decode(0x12, 2, 0x08, 9)).toThrow("unknown conf change type");
  });

  it("needs a joint configuration for more than one step, or on request", () => {
    const context = new Uint8Array(0);
    const one = [{ type: "addNode", nodeId: 1 } as const];
    expect(jointMode({ transition: "auto", changes: one, context })).toBe("simple");
    expect(jointMode({ transition: "auto", changes: [...one, ...one], context })).toBe(
      "jointAutoLeave",
    );
    expect(jointMode({ transition: "implicit", changes: one, context })).toBe("jointAutoLeave");
    expect(jointMode({ transition: "explicit", changes: one, context })).toBe("joint");
    expect(leavesJoint({ transition: "explicit", changes: [], context })).toBe(false);
  });
});
