import { acceptance } from './acceptance.ts';

await acceptance('built-in');
