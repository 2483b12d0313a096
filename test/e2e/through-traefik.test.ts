import { acceptance } from './acceptance.ts';

await acceptance('traefik');
