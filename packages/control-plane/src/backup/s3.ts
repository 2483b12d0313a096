/**
 * Stores backups in a bucket. The AWS library reads credentials, region and address from the AWS_
 * variables.
 */
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import type { Readable } from 'node:stream';
import { defined } from '@berth/kit/defined';
import { messageOf } from '@berth/kit/message-of';
import { BackupError } from './errors.ts';
import { named } from './names.ts';
import type { Target } from './target.ts';

/**
 * An upload has at most 10,000 parts, so a backup is limited to 160 GB. Memory holds up to three
 * parts.
 */
const PART_BYTES = 16 * 1024 ** 2;
const CONNECT_MS = 10_000;
/** Maximum time without an answer to one request. */
const ANSWER_MS = 120_000;

export function s3Target({
  bucket,
  prefix,
  endpoint,
}: {
  bucket: string;
  prefix: string;
  endpoint: string | null;
}): Target {
  const client = new S3Client({
    // With a custom endpoint, use path-style addresses: other servers than AWS often have no host
    // name for each bucket.
    forcePathStyle: endpoint !== null,
    maxAttempts: 4,
    requestHandler: {
      connectionTimeout: CONNECT_MS,
      requestTimeout: ANSWER_MS,
      throwOnRequestTimeout: true,
    },
  });
  const folder = prefix.replace(/\/+$/, '');
  const keyOf = (name: string): string => (folder === '' ? name : `${folder}/${name}`);
  const shown = `s3://${bucket}${folder === '' ? '' : `/${folder}`}`;
  async function attempt<T>(doing: string, run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (error) {
      if (error instanceof BackupError) throw error;
      const where = endpoint === null ? shown : `${shown} at ${endpoint}`;
      throw new BackupError('target_unavailable', `${where}: ${doing}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
  return {
    shown,
    folder: null,
    async put(name, content) {
      const upload = new Upload({
        client,
        params: {
          Bucket: bucket,
          Key: keyOf(name),
          Body: content,
          ContentType: 'application/octet-stream',
        },
        partSize: PART_BYTES,
        queueSize: 2,
        // Deletes the parts of a failed upload, because the storage would charge for them.
        leavePartsOnError: false,
      });
      // Aborts the upload if the stream fails; otherwise the upload would wait for it forever.
      content.once('error', () => void upload.abort());
      await attempt(`the backup ${name} was not written`, () => upload.done());
    },
    get: (name) =>
      attempt(`the backup ${name} cannot be read`, async () => {
        const { Body: body } = await client.send(
          new GetObjectCommand({ Bucket: bucket, Key: keyOf(name) }),
        );
        if (body === undefined) throw new Error('the answer of the object storage has no content');
        return body as Readable;
      }),
    list: () =>
      attempt('cannot be listed', async () => {
        const names: string[] = [];
        for (let token: string | undefined; ; ) {
          const page = await client.send(
            new ListObjectsV2Command({
              Bucket: bucket,
              Prefix: keyOf('berth-'),
              ...defined({ ContinuationToken: token }),
            }),
          );
          names.push(
            ...(page.Contents ?? []).map(({ Key: key = '' }) => key.slice(keyOf('').length)),
          );
          token = page.NextContinuationToken;
          if (token === undefined) return names.map(named).filter((found) => found !== null);
        }
      }),
    async remove(name) {
      await attempt(`the backup ${name} was not deleted`, () =>
        client.send(new DeleteObjectCommand({ Bucket: bucket, Key: keyOf(name) })),
      );
    },
  };
}
