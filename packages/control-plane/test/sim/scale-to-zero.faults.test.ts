/** More seeds than `npm test` has time for (scale-to-zero.slow.test.ts). */
import { checkScaleToZero } from './scale-to-zero.ts';

checkScaleToZero([5, 6, 7, 8]);
