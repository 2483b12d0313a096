/**
 * One seed; two-control-planes.faults.test.ts has the next ones. More:
 * `npm run sim -- --postgres`.
 */
import { checkTwo } from './check-two.ts';

await checkTwo([1]);
