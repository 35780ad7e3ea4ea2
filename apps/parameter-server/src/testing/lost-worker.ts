import { createServer } from "node:net";

// A worker that dies in the middle of a part. It prints the address of its part, answers the first
// request with a head and half of the promised bytes, and kills itself.

const bytes = Number(process.argv[2]);
const server = createServer((socket) => {
  socket.on("data", (data) => {
    if (!data.includes("clock")) return;
    const head = Buffer.alloc(24);
    head.writeDoubleLE(bytes, 16);
    const half = Buffer.from(new Float32Array(bytes / 8).fill(1000).buffer);
    socket.write(Buffer.concat([head, half]), () => process.kill(process.pid, "SIGKILL"));
  });
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  if (address && typeof address === "object") console.log(`tcp:127.0.0.1:${address.port}`);
});
