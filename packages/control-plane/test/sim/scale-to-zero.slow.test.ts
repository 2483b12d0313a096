/**
 * Projects that are scaled to 0 and up again while nodes, agents and control planes fail.
 * scale-to-zero.faults.test.ts has the next seeds.
 */
import { checkScaleToZero } from './scale-to-zero.ts';

checkScaleToZero([1, 2, 3, 4]);
