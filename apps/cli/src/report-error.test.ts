import { NotFoundError } from "@heddle/client/errors";
import { expect, test, vi } from "vitest";
import { reportError } from "./report-error.ts";

test.for([
  ["No role has the name user.", "roles"],
  ["No service account has the name x.", "service-accounts"],
  ["Nothing has the id x.", "keys"],
])("an error of `heddle keys`: %s names `heddle %s list`", ([message, noun]) => {
  const written: string[] = [];
  const write = vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    written.push(String(text));
    return true;
  });
  const facts = { code: "not_found", status: 404, request_id: "req_1" };
  expect(reportError(new NotFoundError(String(message), facts), "keys")).toBe(3);
  write.mockRestore();
  expect(written.join("")).toContain(`fix \`heddle ${noun} list\` lists the valid ones.`);
});
