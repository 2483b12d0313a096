/**
 * Open connections during a switch, through the real Traefik. `npm run test:faults` runs the same
 * tests through the built-in proxy.
 */
import { testSwitchThrough } from './switch.ts';

await testSwitchThrough('traefik');
