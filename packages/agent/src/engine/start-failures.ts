/**
 * Finds the next step for an error of a container start, by its message. Pure;
 * test/engine/diagnosis.test.ts has a real message for every row.
 */

const CRLF =
  'a script with Windows line ends, or whose first line names a missing interpreter, gives the ' +
  'same error';

const HINTS: readonly (readonly [RegExp, string])[] = [
  [
    /no command specified/i,
    'the image has no ENTRYPOINT and no CMD; add CMD ["program", "argument"] to the Dockerfile',
  ],
  [
    /unable to find user|no matching entries in (passwd|group) file/i,
    'USER names a user or group that the image does not have; add it in the Dockerfile, or set ' +
      'a numeric USER',
  ],
  [
    /exec format error/i,
    'the kernel cannot execute the file: a script needs a first line such as #!/bin/sh, and a ' +
      'program must be built for the architecture of the node',
  ],
  [
    /error (creating|mounting)[^\n]*read-only file system|mkdirat[^\n]*read-only file system/i,
    'one mount path lies inside a read-only mount, and the folder does not exist there; choose ' +
      'another mount path, or create the folder in the dataset',
  ],
  [
    /chdir to cwd|Cwd must be|mkdir[^\n]*not a directory/i,
    'WORKDIR is not a folder that the user of the image can enter; correct WORKDIR or USER in ' +
      'the Dockerfile',
  ],
  [
    /exec: [^\n]*permission denied|permission denied: unknown/i,
    'the file of the command is not executable: git update-index --chmod=+x FILE, or RUN chmod ' +
      '+x FILE in the Dockerfile',
  ],
  [
    /executable file not found|exec[^\n]*no such file or directory|stat [^\n]*no such file or directory/i,
    'the image does not contain the program of ENTRYPOINT or CMD; correct its name or path ' +
      `(${CRLF})`,
  ],
];

/** Returns `; ` and the next step, or an empty text. */
export function startHint(stderr: string): string {
  const hint = HINTS.find(([pattern]) => pattern.test(stderr))?.[1];
  return hint === undefined ? '' : `; ${hint}`;
}
