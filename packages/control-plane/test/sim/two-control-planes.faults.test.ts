/** More seeds than `npm test` has time for (two-control-planes.real.test.ts). */
import { checkTwo } from './check-two.ts';

await checkTwo([2, 3, 4, 5, 6, 7, 8, 9]);
