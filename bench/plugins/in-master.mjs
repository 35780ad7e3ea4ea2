import { sameWork } from "./same-work.mjs";

export default sameWork("in-master");
