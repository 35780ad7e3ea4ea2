import { createHash, generateKeyPairSync, sign } from "node:crypto";

/** A witness as C2SP tlog-cosignature has it: its key, and what makes its lines. */
export function eventWitness(name: string) {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const x = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url");
  const material = Buffer.concat([Buffer.of(4), x]);
  const id = createHash("sha256").update(`${name}\n`).update(material).digest().subarray(0, 4);
  const cosign = (text: string): string => {
    const time = Buffer.alloc(8);
    time.writeBigUInt64BE(1_800_000_000n);
    const signed = sign(null, Buffer.from(`cosignature/v1\ntime 1800000000\n${text}`), privateKey);
    return `\u2014 ${name} ${Buffer.concat([id, time, signed]).toString("base64")}\n`;
  };
  return { key: `${name}+${id.toString("hex")}+${material.toString("base64")}`, cosign };
}
