/** Open connections during a switch, through the proxy for development. */
import { testSwitchThrough } from '../e2e/switch.ts';

await testSwitchThrough('built-in');
