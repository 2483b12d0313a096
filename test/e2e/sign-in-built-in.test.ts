import { signInSuite } from './sign-in-plain.ts';

signInSuite('built-in');
