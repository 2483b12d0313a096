/**
 * Writes notes for the deployment log about image instructions that Berth treats differently than
 * their author might expect. Pure.
 */
import type { ImageConfig } from './image-config.ts';

export type ImageUse = {
  /** Go's name of the architecture of this node. */
  arch: string;
  /** Mount paths of datasets, volumes and secrets. */
  targets: readonly string[];
  /** PORT as the project sets it; null if the project does not set it. */
  port: number | null;
};

/** Architecture pairs: a processor of the first architecture also runs images of the second. */
const RUNS_TOO: Readonly<Record<string, string>> = { amd64: '386' };

export function imageNotes(image: ImageConfig, { arch, targets, port }: ImageUse): string[] {
  return [
    ...(image.arch === '' || image.arch === arch || RUNS_TOO[arch] === image.arch
      ? []
      : [
          `the image is built for ${image.arch}, and this node is ${arch}: it starts only if ` +
            `the node emulates ${image.arch}; remove --platform from its FROM line, or build it ` +
            'on ' +
            'a builder of this architecture',
        ]),
    ...volumeNotes(image.volumes, targets),
    ...(image.port === null || port === null || image.port === String(port)
      ? []
      : [
          `the image sets PORT=${image.port}; Berth sets PORT=${port}, the container port of ` +
            'the project. To keep another value, set the variable PORT of the project',
        ]),
  ];
}

function volumeNotes(volumes: readonly string[], targets: readonly string[]): string[] {
  const mounted = targets.map(plain);
  const open = volumes.map(plain).filter((path) => !mounted.includes(path));
  const inside = open.filter((path) => mounted.some((target) => path.startsWith(`${target}/`)));
  const outside = open.filter((path) => !inside.includes(path));
  return [
    ...(outside.length === 0
      ? []
      : [
          `the image declares VOLUME ${outside.join(', ')}: files there are lost with the next ` +
            'deployment. To keep them, mount a volume of the project at the same path (volumes)',
        ]),
    ...(inside.length === 0
      ? []
      : [
          `the image declares VOLUME ${inside.join(', ')} inside a mount of the project: the ` +
            'engine hides the files of the mount there, and what is written there is lost with ' +
            'the next deployment. Mount a volume of the project at exactly this path',
        ]),
  ];
}

const plain = (path: string): string => (path.length > 1 ? path.replace(/\/+$/, '') : path);
