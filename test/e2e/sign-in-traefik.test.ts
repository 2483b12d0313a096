import { signInSuite } from './sign-in-plain.ts';

signInSuite('traefik');
