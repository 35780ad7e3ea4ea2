// holds: kube-image-bill

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { imageBill } from "./image-bill.ts";

const root = mkdtempSync(join(tmpdir(), "heddle-image-"));
const put = (path: string, text: string) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
};
const manifest = (path: string, name: string, license = "MIT") =>
  put(
    `opt/heddle/node_modules/${path}/package.json`,
    JSON.stringify({ name, version: "1.0.0", license }),
  );

interface Bill {
  readonly components: readonly { readonly purl: string; readonly licenses?: readonly object[] }[];
}

const bill = () => imageBill(root, { image: "heddle/heddle:1", arch: "amd64" }) as Bill;

beforeAll(() => {
  put("etc/os-release", 'NAME="Debian"\nID=debian\n');
  const status = (name: string, version: string, state: string) =>
    `Package: ${name}\nStatus: ${state}\nArchitecture: amd64\nVersion: ${version}\n`;
  const packages = [
    status("libstdc++6", "1:12.2-14", "install ok installed"),
    status("gone", "1", "deinstall ok config-files"),
  ];
  put("var/lib/dpkg/status", packages.join("\n"));
  manifest("koffi", "koffi");
  manifest("koffi/node_modules/@a/inner", "@a/inner", "ISC");
  put("opt/heddle/node_modules/koffi/lib/package.json", "not one");
  const texts = ["@nestjs/core 11.0.1 (MIT)", "rxjs 7.8.0 (Apache-2.0)"];
  put(
    "opt/heddle/packaged/LICENSES.txt",
    texts.map((line) => `${line}\n\nText 1.0.0 (a) of it\n`).join("\n"),
  );
  put("usr/local/bin/node", "\0https://nodejs.org/download/release/v24.1.2/node-v24.1.2.tar.gz\0");
});
afterAll(() => rmSync(root, { recursive: true }));

it("image bill: has packages of Debian, installed and bundled modules, and Node", () => {
  const names = bill().components.map(({ purl }) => purl.replace(/sha256:\w+/, "sha256:X"));
  expect(names).toEqual([
    "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2-14?arch=amd64",
    "pkg:generic/node@24.1.2?checksum=sha256:X",
    "pkg:npm/%40a/inner@1.0.0",
    "pkg:npm/%40nestjs/core@11.0.1",
    "pkg:npm/koffi@1.0.0",
    "pkg:npm/rxjs@7.8.0",
  ]);
  const inner = bill().components.find(({ purl }) => purl.includes("inner"));
  expect(inner?.licenses).toEqual([{ license: { name: "ISC" } }]);
});

it("image bill: is the same for the same files", () => {
  expect(JSON.stringify(bill())).toBe(JSON.stringify(bill()));
});
