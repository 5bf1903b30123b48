/* Records of batches to columns and back: the compiled counterpart of `numpy_records.py`.
 *
 * A plain C library for `ctypes`: no Python headers, no allocation, no global state. The caller owns
 * all memory. Input may be anything: no byte outside [data, data + size) is ever read, and since
 * every byte written to a column was consumed from the input, columns as large as the input hold.
 *
 *   record  length varint | attributes i8 | timestamp delta | offset delta | key length | key
 *           | value length | value | header count | (name length | name | value length | value)...
 *
 * All integers but the attributes are zigzag varints; a negative length is null.
 */

#include <stdint.h>
#include <string.h>

/* What the scan must know of a batch: `BATCH` in layout.py. */
typedef struct {
    int64_t start, size;    /* of the records, in the flat payload */
    int64_t count;          /* of the records */
    int64_t base_offset;
    int64_t time_ms;        /* base timestamp, or the time of the append */
    int64_t is_append_time;
} batch_t;

/* One variable-length column in Arrow's layout. `offsets` is null when it was not requested. */
typedef struct {
    int32_t *offsets;
    uint8_t *bytes;
    uint8_t *valid;         /* a bitmap, zeroed by the caller */
    int64_t count, nulls;
} binary_t;

typedef struct {
    int64_t *offsets, *timestamps;
    int32_t *timestamp_types;
    int32_t *header_offsets;
    binary_t key, value, header_name, header_value;
} columns_t;

typedef struct {
    const uint8_t *at, *end;
} reader_t;

typedef struct {
    const uint8_t *at;
    int64_t size;           /* negative: null */
} field_t;

/* Identifies the source that a library was compiled from, so that a stale one is not used. */
#ifndef SOURCE_ID
#define SOURCE_ID 0
#endif
uint32_t dragoman_source_id(void) { return SOURCE_ID; }

/* ---- reading */

static inline int read_varint(reader_t *in, int64_t *value)
{
    uint64_t bits = 0;
    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        if (shift == 63 && byte > 1)
            return 0;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return 1;
        }
    }
    return 0;
}

static inline int read_field(reader_t *in, field_t *field)
{
    if (!read_varint(in, &field->size) || field->size > in->end - in->at)
        return 0;
    field->at = in->at;
    in->at += field->size > 0 ? field->size : 0;
    return 1;
}

static inline void put(binary_t *column, field_t field)
{
    if (!column->offsets)
        return;
    int32_t end = column->offsets[column->count];
    if (field.size >= 0) {
        memcpy(column->bytes + end, field.at, (size_t)field.size);
        column->valid[column->count >> 3] |= (uint8_t)(1u << (column->count & 7));
        end += (int32_t)field.size;
    } else {
        column->nulls++;
    }
    column->offsets[++column->count] = end;
}

static int read_headers(reader_t *in, columns_t *out, int is_wanted)
{
    field_t name, value;
    int64_t count;
    if (!read_varint(in, &count) || count < 0 || count > in->end - in->at)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        if (!read_field(in, &name) || name.size < 0 || !read_field(in, &value))
            return 0;
        if (is_wanted) {
            put(&out->header_name, name);
            put(&out->header_value, value);
        }
    }
    return in->at == in->end;
}

/* Reads one record; `row` advances when its offset is in the wanted range. */
static inline int read_record(reader_t *in, const batch_t *batch, int64_t first, int64_t end,
                              columns_t *out, int64_t *row)
{
    field_t key, value;
    int64_t time_delta, offset_delta, time, micros, offset;
    if (in->at == in->end)
        return 0;
    in->at++; /* attributes, of which none is defined */
    if (!read_varint(in, &time_delta) || !read_varint(in, &offset_delta)
        || !read_field(in, &key) || !read_field(in, &value))
        return 0;
    if (offset_delta != (int32_t)offset_delta
        || __builtin_add_overflow(batch->base_offset, offset_delta, &offset)
        || __builtin_add_overflow(batch->time_ms, batch->is_append_time ? 0 : time_delta, &time)
        || __builtin_mul_overflow(time, 1000, &micros))
        return 0;
    int is_wanted = offset >= first && offset < end;
    if (!read_headers(in, out, is_wanted))
        return 0;
    if (!is_wanted)
        return 1;
    put(&out->key, key);
    put(&out->value, value);
    if (out->offsets)
        out->offsets[*row] = offset;
    if (out->timestamps)
        out->timestamps[*row] = micros;
    if (out->timestamp_types)
        out->timestamp_types[*row] = (int32_t)batch->is_append_time;
    ++*row;
    if (out->header_offsets)
        out->header_offsets[*row] = (int32_t)out->header_name.count;
    return 1;
}

/* Returns the number of rows written, or -1 - i when batch i is malformed. */
int64_t dragoman_decode(const uint8_t *flat, const batch_t *batches, int64_t batch_count,
                        int64_t first, int64_t end, columns_t *out)
{
    int64_t row = 0;
    for (int64_t i = 0; i < batch_count; i++) {
        const batch_t *batch = &batches[i];
        reader_t in = {flat + batch->start, flat + batch->start + batch->size};
        for (int64_t k = 0; k < batch->count; k++) {
            int64_t size;
            if (!read_varint(&in, &size) || size < 0 || size > in.end - in.at)
                return -1 - i;
            reader_t record = {in.at, in.at + size};
            if (!read_record(&record, batch, first, end, out, &row))
                return -1 - i;
            in.at += size;
        }
        if (in.at != in.end)
            return -1 - i;
    }
    return row;
}

/* ---- writing */

/* An Arrow column to read from; `offsets` is null for a missing column, whose rows are all null. */
typedef struct {
    const int32_t *offsets;
    const uint8_t *bytes;
    const uint8_t *valid;   /* null when all rows are valid */
    int64_t shift;          /* in the bitmap, where an array that is a slice begins */
} source_t;

static inline int varint_size(int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    return 1 + (63 - __builtin_clzll(bits | 1)) / 7;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (bits > 0x7f) {
        *at++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *at++ = (uint8_t)bits;
    return at;
}

static inline int64_t source_size(const source_t *source, int64_t row)
{
    int64_t bit = row + source->shift;
    if (!source->offsets || (source->valid && !(source->valid[bit >> 3] >> (bit & 7) & 1)))
        return -1;
    return source->offsets[row + 1] - source->offsets[row];
}

static inline int64_t field_size(int64_t size)
{
    return varint_size(size) + (size > 0 ? size : 0);
}

static inline uint8_t *write_field(uint8_t *at, const source_t *source, int64_t row, int64_t size)
{
    at = write_varint(at, size);
    if (size > 0) {
        memcpy(at, source->bytes + source->offsets[row], (size_t)size);
        at += size;
    }
    return at;
}

/* Writes records [first, end) to `out`, which has room for them, and returns the bytes written.
 * `times` are milliseconds. `headers` holds each row's headers in wire form, preceded by their count;
 * either all rows have them or none. */
int64_t dragoman_encode(const source_t *key, const source_t *value, const source_t *headers,
                        const int64_t *times, int64_t first, int64_t end, uint8_t *out)
{
    uint8_t *at = out;
    for (int64_t row = first; row < end; row++) {
        int64_t time_delta = times[row] - times[first], offset_delta = row - first;
        int64_t key_size = source_size(key, row), value_size = source_size(value, row);
        int64_t headers_size = headers->offsets ? source_size(headers, row) : 1;
        at = write_varint(at, 1 + varint_size(time_delta) + varint_size(offset_delta)
                                  + field_size(key_size) + field_size(value_size) + headers_size);
        *at++ = 0;
        at = write_varint(at, time_delta);
        at = write_varint(at, offset_delta);
        at = write_field(at, key, row, key_size);
        at = write_field(at, value, row, value_size);
        if (headers->offsets)
            memcpy(at, headers->bytes + headers->offsets[row], (size_t)headers_size);
        else
            *at = 0;
        at += headers_size;
    }
    return at - out;
}
